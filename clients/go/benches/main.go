// Benches is the section of docs/benchmarks-clients.md about Go: `make bench-clients`.
package main

func main() {}
