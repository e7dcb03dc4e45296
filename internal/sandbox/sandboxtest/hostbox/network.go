//go:build linux

package hostbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// listenIn listens in the network of a process, at an address that becomes one of that network's own.
func listenIn(pid int, at netip.AddrPort) (listener net.Listener, err error) {
	err = inNetwork(pid, func() (err error) {
		if !at.Addr().IsLoopback() {
			err = raise("lo:1", at.Addr())
		}
		if err == nil {
			listener, err = net.Listen("tcp4", at.String())
		}
		return err
	})
	return listener, err
}

// inNetwork calls do in the network of a process, which has its loopback then.
func inNetwork(pid int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread stays in that network, and ends with this goroutine
		network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			defer network.Close()
			err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = raise("lo", netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// raise gives the loopback interface an address.
func raise(name string, address netip.Addr) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	with, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := errors.Join(with.SetInet4Addr(address.AsSlice()), unix.IoctlIfreq(socket, unix.SIOCSIFADDR, with)); err != nil {
		return err
	}
	with.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, with)
}

// relay connects each connection to an address of this machine.
func relay(listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, from)
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, out)
		}()
	}
}
