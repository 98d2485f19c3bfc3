"""Pure functions over a recorded trace."""
