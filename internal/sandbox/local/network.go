//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/egress"
)

// A box's network is its own loopback. All addresses are local there. The kernel redirects every TCP connection and
// every DNS query to the gate of package egress, whose sockets the server opened in that network. Everything else is
// rejected. The sockets have low ports, which no command of a box can take while no server has them.

// openNetwork opens the sockets of a box's gate in the network namespace of a process, and makes the kernel redirect
// all connections there to them. It can be repeated after another server has done it.
func openNetwork(ctx context.Context, pid int) (s egress.Sockets, err error) {
	if !asRoot() {
		return openNetworkAsUser(ctx, pid)
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return s, err
	}
	defer namespace.Close()
	err = inNetwork(int(namespace.Fd()), func() (err error) {
		s, err = prepareNetwork()
		return err
	})
	return s, err
}

// canOpenNetwork fails if this machine and user cannot give boxes a network. It tries this in a new network namespace.
func canOpenNetwork(ctx context.Context) error {
	if !asRoot() {
		return canOpenNetworkAsUser(ctx)
	}
	return inNetwork(-1, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return err
		}
		s, err := prepareNetwork()
		return errors.Join(err, s.Close())
	})
}

// inNetwork calls do on a thread in the network namespace of a descriptor, or in a new one if the descriptor is
// negative.
func inNetwork(namespace int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		var err error
		if namespace < 0 {
			err = unix.Unshare(unix.CLONE_NEWNET)
		} else {
			err = unix.Setns(namespace, unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// destination returns the original destination of a redirected connection.
func destination(conn net.Conn) (at netip.AddrPort, err error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return at, errors.New("it is no TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return at, err
	}
	const originalDst = 80 // SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
	level := unix.SOL_IP
	if local, ok := conn.LocalAddr().(*net.TCPAddr); ok && local.IP.To4() == nil {
		level = unix.SOL_IPV6
	}
	failed := raw.Control(func(fd uintptr) {
		var to unix.RawSockaddrInet6 // also large enough for an IPv4 address
		size := uint32(unsafe.Sizeof(to))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), originalDst, uintptr(unsafe.Pointer(&to)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			err = errno
			return
		}
		port := (*[2]byte)(unsafe.Pointer(&to.Port))
		ip := netip.AddrFrom16(to.Addr)
		if level == unix.SOL_IP {
			ip = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&to)).Addr)
		}
		at = netip.AddrPortFrom(ip, uint16(port[0])<<8|uint16(port[1]))
	})
	return at, errors.Join(failed, err)
}

// connectNetwork connects a running container to the hosts that its box's policy allows and to the server's doors,
// unless it is already connected. Callers hold b.mu for writing.
func (b *box) connectNetwork(ctx context.Context, c *container) error {
	allowsNone := b.Egress.Mode == egress.None || b.Egress.Mode == ""
	if c.gate != nil || !c.networked || allowsNone && b.d.cfg.Door == nil {
		return nil
	}
	sockets, err := openNetwork(ctx, c.process.Pid)
	if err != nil {
		return fmt.Errorf("open the network: %w", err)
	}
	gate := egress.Config{Policy: b.Egress, Destination: destination, Dial: b.d.cfg.Dial, Refused: func(r egress.Refusal) { b.d.reportRefusal(b, c, r) }}
	if b.d.cfg.Door != nil {
		gate.Door = func(conn net.Conn) { b.d.cfg.Door(conn, b.Labels) }
	}
	c.gate = egress.New(gate, sockets)
	return nil
}

// Door returns the origin at which programs in boxes reach the server's doors; see [sandbox.Doored].
func (d *Driver) Door() string {
	if d.cfg.Door == nil || !d.caps.Network {
		return ""
	}
	return egress.DoorOrigin
}

// SetEgress sets the policy for a box's connections, from its next connection on; see [sandbox.Gated].
func (d *Driver) SetEgress(ctx context.Context, ref string, p egress.Policy) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	b.mu.RLock()
	same := b.gone || b.Egress.Equal(p)
	b.mu.RUnlock()
	if same {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return notFound(b.ID)
	}
	was := b.Egress
	b.Egress = p
	if err := b.save(); err != nil {
		b.Egress = was
		if errors.Is(err, os.ErrNotExist) { // the operator deleted it from the quarantine
			return notFound(b.ID)
		}
		return readable(ctx, err, "what the sandbox may reach cannot be changed")
	}
	if b.running == nil || !b.running.alive() {
		return nil
	}
	if b.running.gate != nil {
		b.running.gate.SetPolicy(p)
		return nil
	}
	if err := b.connectNetwork(ctx, b.running); err != nil {
		return readable(ctx, err, "the sandbox cannot get a network")
	}
	return nil
}
