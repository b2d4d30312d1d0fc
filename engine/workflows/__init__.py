"""What a workflow says: its definition, how it is read and checked, its schemas and its expressions."""
