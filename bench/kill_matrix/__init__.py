"""The kill matrix: clew and six other agent libraries, killed in the same places."""
