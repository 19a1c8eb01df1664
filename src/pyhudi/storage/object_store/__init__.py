"""Storage in S3, Google Cloud Storage and Azure over obstore."""
