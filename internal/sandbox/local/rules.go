//go:build linux

package local

import (
	"errors"
	"net"

	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/egress"
)

const (
	// gatePort receives the redirected connections, and namesPort the DNS queries.
	gatePort, namesPort = 54, 53
	// nftTable is the name of the table of rules.
	nftTable = "arbe"
)

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
