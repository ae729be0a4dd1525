"""Our own .proto files and what protoc made of them."""
