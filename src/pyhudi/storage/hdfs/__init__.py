"""Storage in HDFS, through WebHDFS."""
