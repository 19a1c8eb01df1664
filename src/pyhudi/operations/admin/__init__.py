"""Administration of tables: create, open, alter, validate, repair, restore, upgrade."""
