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

	"time"

	"github.com/arbe-dev/arbe/internal/egress"
)

// A process with several threads, as every Go program is, cannot enter a user namespace. A server that is not root
// therefore starts its own program a second time, in the box's namespaces, with nsenter. This process, the opener,
// opens the sockets, passes them to the server and ends.

// openerVariable is the environment variable that makes this program an opener. Its value is openAll, or the port to
// connect to. openerSocket is the descriptor through which an opener passes the sockets. refusedCode is its exit code
// if nothing listens on the port.
const (
	openerVariable = "ARBE_OPEN_NETWORK"
	openAll        = "all"
	openerSocket   = 3
	refusedCode    = 3
)

// This is not in main, because test programs of this package are openers too.
func init() {
	what, err := os.Getenv(openerVariable), error(nil)
	switch what {
	case "":
		return
	case openAll:
		err = passNetwork()
	default:
		err = passConnection(what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrDeadlineExceeded) {
			os.Exit(refusedCode)
		}
		os.Exit(1)
	}
	os.Exit(0)
}

// passConnection connects to a port in the namespaces of this process, and passes the connection on.
func passConnection(port string) error {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	conn, err := dialLoopback(context.Background(), uint16(number))
	if err != nil {
		return err
	}
	f, err := conn.File()
	if err != nil {
		return err
	}
	return unix.Sendmsg(openerSocket, []byte{1, 0, 0}, unix.UnixRights(int(f.Fd())), nil, 0)
}

// passNetwork opens the sockets of a box in the namespaces of this process, and passes them on.
func passNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo) // it is already up in a box, but not in a new namespace
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

// runOpener runs an opener and returns the sockets that it passes.
func runOpener(cmd *exec.Cmd) (s egress.Sockets, err error) {
	fds, counts, err := receive(cmd, openAll)
	if err != nil {
		return s, err
	}
	return socketsOf(fds, counts)
}

// receive runs an opener with a value of openerVariable. It returns the descriptors that the opener passes, and their
// number by kind.
func receive(cmd *exec.Cmd, what string) (fds []int, counts [3]byte, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, counts, err
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "sockets")
	defer theirs.Close()
	var said bytes.Buffer
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = []string{openerVariable + "=" + what, "PATH=" + hostPath}, []*os.File{theirs}, &said
	if err := cmd.Run(); err != nil {
		return nil, counts, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	control := make([]byte, unix.CmsgSpace(4*16))
	n, size, _, _, err := unix.Recvmsg(pair[0], counts[:], control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != len(counts) {
		return nil, counts, errors.Join(errors.New("no sockets came"), err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return nil, counts, errors.Join(errors.New("no sockets came"), err)
	}
	fds, err = unix.ParseUnixRights(&messages[0])
	return fds, counts, err
}

// socketsOf turns descriptors into sockets. counts are the numbers of descriptors by kind.
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

// openNetworkAsUser is like openNetwork, for a server that is not root.
func openNetworkAsUser(ctx context.Context, pid int) (egress.Sockets, error) {
	program, err := os.Executable()
	if err != nil {
		return egress.Sockets{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return runOpener(enter(ctx, pid, program))
}

// enter returns a command that runs a program in the user and network namespaces of a process.
func enter(ctx context.Context, pid int, program string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", "--user", "--net", "--preserve-credentials", "--target", strconv.Itoa(pid), program)
}

// dialAsUser is like dialInside, for a server that is not root.
func dialAsUser(ctx context.Context, pid int, port uint16) (*net.TCPConn, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*dialPatience)
	defer cancel()
	fds, _, err := receive(enter(ctx, pid, program), strconv.Itoa(int(port)))
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == refusedCode {
		return nil, unix.ECONNREFUSED
	}
	if err != nil {
		return nil, err
	}
	for _, fd := range fds[1:] {
		unix.Close(fd)
	}
	f := os.NewFile(uintptr(fds[0]), "socket")
	defer f.Close() // the connection is a copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("it is no TCP connection"), conn.Close())
	}
	return tcp, nil
}

// canOpenNetworkAsUser is like canOpenNetwork, for a server that is not root.
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

// dialLoopback connects to a port in the network namespace of the calling thread. It also tries ::1, because many
// Node.js servers listen only there.
func dialLoopback(ctx context.Context, port uint16) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialPatience}
	conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if errors.Is(err, unix.ECONNREFUSED) {
		var failed error
		if conn, failed = dialer.DialContext(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(int(port)))); failed == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// dialPatience is how long a program of a box may take to accept a connection.
const dialPatience = 5 * time.Second
