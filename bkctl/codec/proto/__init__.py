"""bkctl's .proto files and the modules generated from them."""
