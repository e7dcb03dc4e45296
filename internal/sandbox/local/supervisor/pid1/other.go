//go:build !linux

// The program of process 1 of a box runs only on Linux.
package main

func main() {}
