"""`make demo`: a year of real flights, month by month, into a Hudi table: once in this process, once on local Spark."""
