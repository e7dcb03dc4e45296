//go:build !linux

// Pid1 is process 1 of a box. It runs only on Linux.
package main

func main() {}
