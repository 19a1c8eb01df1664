"""HDFS storage over WebHDFS."""
