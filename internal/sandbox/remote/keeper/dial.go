//go:build linux

package main

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// passOn connects to a port of the box's loopback and forwards its standard input and output. It first prints
// [protocol.Connected]. It returns the exit code: [protocol.NobodyListens] if nothing accepted the connection. It avoids
// package net, which would make this program larger.
func passOn(port string) int {
	runtime.GOMAXPROCS(1) // the threads count towards the limit of the box
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 2
	}
	fd, err := connect(syscall.AF_INET, &syscall.SockaddrInet4{Port: int(number), Addr: [4]byte{127, 0, 0, 1}})
	if err == syscall.ECONNREFUSED {
		fd, err = connect(syscall.AF_INET6, &syscall.SockaddrInet6{Port: int(number), Addr: [16]byte{15: 1}})
	}
	if err != nil {
		return protocol.NobodyListens
	}
	if _, err := os.Stdout.WriteString(protocol.Connected); err != nil {
		return 1
	}
	conn := os.NewFile(uintptr(fd), "connection")
	go func() {
		_, _ = io.Copy(conn, os.Stdin) // if it fails, reading fails too, or the program is still sending
		_ = syscall.Shutdown(fd, syscall.SHUT_WR)
	}()
	_, err = io.Copy(os.Stdout, conn)
	if err != nil {
		return 1
	}
	return 0
}

func connect(family int, to syscall.Sockaddr) (fd int, err error) {
	if fd, err = syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = syscall.Connect(fd, to); err != nil {
		_ = syscall.Close(fd)
	}
	return fd, err
}
