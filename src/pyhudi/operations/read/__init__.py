"""Read operations: plan queries as file slices, columns and a bound predicate."""
