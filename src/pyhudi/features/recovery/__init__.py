"""Recovery of lost metadata: hoodie.properties and the timeline, inferred from data files."""
