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

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/egress"
)

// A box's network is its own loopback. All addresses are local there. The kernel redirects every TCP connection and
// every DNS query to the gate of package egress, whose sockets the server opened in that network. Everything else is
// rejected. The sockets have low ports, which no command of a box can take while no server has them.

const (
	// gatePort receives the redirected connections, and namesPort the DNS queries.
	gatePort, namesPort = 54, 53
	// nftTable is the name of the table of rules.
	nftTable = "arbe"
)

// resolvConf is the content of /etc/resolv.conf in a box with a network.
const resolvConf = "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n"

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

// prepareNetwork is like openNetwork, but uses the network namespace of the calling thread.
func prepareNetwork() (s egress.Sockets, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = egress.Sockets{}
		}
	}()
	if err := addRoutes(); err != nil {
		return s, fmt.Errorf("add the routes: %w", err)
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		var stream net.Listener
		stream, err = net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(gatePort)))
		if ip == "::1" && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
			err = nil // a kernel without IPv6
			break
		}
		if err != nil {
			return s, err
		}
		s.Connections = append(s.Connections, stream)
		if stream, err = net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(namesPort))); err != nil {
			return s, err
		}
		s.NameStreams = append(s.NameStreams, stream)
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", net.JoinHostPort(ip, fmt.Sprint(namesPort))); err != nil {
			return s, err
		}
		s.Names = append(s.Names, packets)
	}
	if err := redirect(); err != nil {
		return s, fmt.Errorf("set the rules: %w", err)
	}
	return s, nil
}

// addRoutes makes all addresses local. Without a source address, IPv4 connections would wait forever.
func addRoutes() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, r := range []struct{ to, from string }{{"0.0.0.0/0", "127.0.0.1"}, {"::/0", "::1"}} {
		to, err := netlink.ParseIPNet(r.to)
		if err != nil {
			return err
		}
		err = netlink.RouteReplace(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to, Src: net.ParseIP(r.from), Scope: netlink.SCOPE_HOST, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_MAIN})
		if err != nil && !(r.from == "::1" && errors.Is(err, unix.EOPNOTSUPP)) { // a kernel without IPv6
			return err
		}
	}
	return nil
}

// redirect atomically replaces the rules of the calling thread's network namespace.
func redirect() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: nftTable, Family: nftables.TableFamilyINet}
	c.AddTable(table) // the deletion fails without a table
	c.DelTable(table)
	c.AddTable(table)
	nat := c.AddChain(&nftables.Chain{Name: "redirect", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	filter := c.AddChain(&nftables.Chain{Name: "reject", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	add := func(to *nftables.Chain, parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: to, Exprs: all})
	}
	verdict := func(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }
	for _, loopback := range [][]expr.Any{toLoopback4, toLoopback6} {
		add(nat, loopback, verdict(expr.VerdictReturn))
	}
	add(nat, protocol(unix.IPPROTO_UDP), toPort(53), redirectTo(namesPort))
	add(nat, protocol(unix.IPPROTO_TCP), toPort(53), redirectTo(namesPort))
	add(nat, protocol(unix.IPPROTO_TCP), redirectTo(gatePort))
	add(filter, established, verdict(expr.VerdictAccept))
	for _, loopback := range [][]expr.Any{toLoopback4, toLoopback6} {
		add(filter, loopback, verdict(expr.VerdictAccept))
	}
	add(filter, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
	return c.Flush()
}

// The parts of rules.
var (
	toLoopback4 = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equals(unix.NFPROTO_IPV4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1}, equals(127),
	}
	toLoopback6 = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equals(unix.NFPROTO_IPV6),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16}, equals(net.IPv6loopback...),
	}
	established = []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
)

func equals(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

func protocol(number byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals(number)}
}

func toPort(port uint16) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, equals(binaryutil.BigEndian.PutUint16(port)...)}
}

func redirectTo(port uint16) []expr.Any {
	return []expr.Any{&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)}, &expr.Redir{RegisterProtoMin: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}}
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
