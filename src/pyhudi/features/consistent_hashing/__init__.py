"""The consistent hashing bucket index: hashing metadata, routing and resizes."""
