//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/egress"
)

// A process with several threads, as every Go program is, cannot enter a user namespace. A server that is not root therefore
// has a second process of its program opened in the box's namespaces by nsenter. That one opens the sockets, passes them on
// and ends.

// openerVariable is the environment variable with which this program is such a process. openerSocket is its descriptor for
// passing the sockets on.
const (
	openerVariable = "ARBE_OPEN_NETWORK"
	openerSocket   = 3
)

// This is not in main, because tests of this package are such programs, too.
func init() {
	if os.Getenv(openerVariable) == "" {
		return
	}
	if err := passNetwork(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// passNetwork opens the sockets of a box in the namespaces of this process, and passes them on.
func passNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo) // it is in a box, and not in a new namespace
	}
	if err != nil {
		return err
	}
	s, err := prepareNetwork()
	if err != nil {
		return err
	}
	var fds []int
	file := func(conn any) error {
		f, err := conn.(interface{ File() (*os.File, error) }).File()
		if err == nil {
			fds = append(fds, int(f.Fd()))
		}
		return err
	}
	for _, l := range append(append([]net.Listener{}, s.Connections...), s.NameStreams...) {
		err = errors.Join(err, file(l))
	}
	for _, c := range s.Names {
		err = errors.Join(err, file(c))
	}
	if err != nil {
		return err
	}
	return unix.Sendmsg(openerSocket, []byte{byte(len(s.Connections)), byte(len(s.NameStreams)), byte(len(s.Names))}, unix.UnixRights(fds...), nil, 0)
}

// runOpener runs an opener, and returns the sockets that it passes on.
func runOpener(cmd *exec.Cmd) (s egress.Sockets, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, err
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "sockets")
	defer theirs.Close()
	var said bytes.Buffer
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = []string{openerVariable + "=1", "PATH=" + hostPath}, []*os.File{theirs}, &said
	if err := cmd.Run(); err != nil {
		return s, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var counts [3]byte
	control := make([]byte, unix.CmsgSpace(4*16))
	n, size, _, _, err := unix.Recvmsg(pair[0], counts[:], control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != len(counts) {
		return s, errors.Join(errors.New("no sockets came"), err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return s, errors.Join(errors.New("no sockets came"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return s, err
	}
	return socketsOf(fds, counts)
}

// socketsOf makes sockets of descriptors, of which there are so many of each kind.
func socketsOf(fds []int, counts [3]byte) (s egress.Sockets, err error) {
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		switch streams, names := int(counts[0]), int(counts[0])+int(counts[1]); {
		case i < streams:
			l, failed := net.FileListener(f)
			if err = errors.Join(err, failed); failed == nil {
				s.Connections = append(s.Connections, l)
			}
		case i < names:
			l, failed := net.FileListener(f)
			if err = errors.Join(err, failed); failed == nil {
				s.NameStreams = append(s.NameStreams, l)
			}
		default:
			c, failed := net.FilePacketConn(f)
			if err = errors.Join(err, failed); failed == nil {
				s.Names = append(s.Names, c)
			}
		}
		f.Close() // the sockets are copies
	}
	if err != nil {
		return egress.Sockets{}, errors.Join(err, s.Close())
	}
	return s, nil
}

// openNetworkAsUser is openNetwork for a server that is not root.
func openNetworkAsUser(ctx context.Context, pid int) (egress.Sockets, error) {
	program, err := os.Executable()
	if err != nil {
		return egress.Sockets{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return runOpener(exec.CommandContext(ctx, "nsenter", "--user", "--net", "--preserve-credentials", "--target", strconv.Itoa(pid), program))
}

// canOpenNetworkAsUser is canOpenNetwork for a server that is not root.
func canOpenNetworkAsUser(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	s, err := runOpener(cmd)
	return errors.Join(err, s.Close())
}
