"""What tests share: generators, references, servers, noise."""
