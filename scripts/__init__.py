"""Programs of the project's workshop; none of them is part of the package."""
