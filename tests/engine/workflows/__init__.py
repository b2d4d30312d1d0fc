"""Tests of what a workflow says: documents, definitions, schemas, expressions."""
