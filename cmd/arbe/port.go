package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// port forwards ports of this machine to ports of a sandbox.
func port(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "port THREAD [LOCAL:]REMOTE...",
		Short: "Forward ports of this machine to ports of a thread's sandbox",
		Long: "Listen on ports of this machine, and pass each connection on to a port of the thread's sandbox, until Ctrl-C. LOCAL\n" +
			"is the same number if it is left out, and any free port if it is 0. Only this machine reaches LOCAL.\n" +
			"\n" +
			"A thread without a sandbox gets one, and a stopped one is started. The program that listens need not be running yet.",
		Example: "  arbe port th4w7q2m9x 3000\n" +
			"  arbe port th4w7q2m9x 8080:3000 5432",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fault.New(fault.Invalid, "name a thread and at least one port", "for example: arbe port THREAD 3000")
			}
			return nil
		},
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, args[0])
			if err != nil {
				return err
			}
			f := &forwarding{app: a, client: c, thread: id, told: map[string]bool{}}
			for _, arg := range args[1:] {
				if err := f.listen(ctx, arg); err != nil {
					f.close()
					return err
				}
			}
			defer f.close()
			return f.run(ctx)
		}),
	}
}

// forwarding holds the local ports that are forwarded to one sandbox.
type forwarding struct {
	app     *app
	client  *arbe.Client
	thread  string
	sandbox string
	ports   []forwardedPort

	mu   sync.Mutex
	told map[string]bool // messages already printed
}

type forwardedPort struct {
	local  net.Listener
	remote uint16
}

// listen listens for [LOCAL:]REMOTE.
func (f *forwarding) listen(ctx context.Context, arg string) error {
	local, remote, two := strings.Cut(arg, ":")
	if !two {
		remote = local
	}
	from, err := strconv.ParseUint(local, 10, 16)
	to, failed := strconv.ParseUint(remote, 10, 16)
	if err != nil || failed != nil || to == 0 {
		return fault.Newf(fault.Invalid, "give a port from 1 to 65535, or two ports as LOCAL:REMOTE", "%q is not a port", arg)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(from, 10)))
	if err != nil {
		return fault.Newf(fault.Precondition, fmt.Sprintf("choose another port; arbe port %s 0:%d uses a free one", f.thread, to), "port %d of this machine cannot be used", from).Because(err)
	}
	f.ports = append(f.ports, forwardedPort{l, uint16(to)})
	return nil
}

func (f *forwarding) close() {
	for _, p := range f.ports {
		p.local.Close()
	}
}

// run wakes the sandbox, prints the ports, and passes connections on until ctx ends.
func (f *forwarding) run(ctx context.Context) error {
	if err := f.wake(ctx); err != nil {
		return err
	}
	for _, p := range f.ports {
		if err := f.announce(p); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	for _, p := range f.ports {
		all.Go(func() { f.accept(ctx, &all, p) })
	}
	<-ctx.Done()
	f.close()
	all.Wait()
	return nil
}

func (f *forwarding) announce(p forwardedPort) error {
	at := p.local.Addr().String()
	if f.app.json {
		return f.app.printJSON(forwardView{at, p.remote, f.sandbox, f.thread})
	}
	if f.app.quiet {
		_, err := fmt.Fprintln(f.app.out, at)
		return err
	}
	_, err := fmt.Fprintf(f.app.out, "%s leads to port %d of sandbox %s\n", at, p.remote, f.sandbox)
	return err
}

// wake gets the sandbox ready, and tells the person if that was necessary.
func (f *forwarding) wake(ctx context.Context) error {
	said := false
	woken, err := f.client.WakeSandbox(ctx, f.thread, func() {
		if !said {
			f.app.say("the sandbox is being built or started")
		}
		said = true
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.sandbox = woken.GetSandboxId()
	f.mu.Unlock()
	if woken.GetStarted() {
		f.app.say("the sandbox was stopped and has been restarted: nothing listens in it unless its environment starts it")
	}
	return nil
}

// accept passes on all connections to a port.
func (f *forwarding) accept(ctx context.Context, all *sync.WaitGroup, p forwardedPort) {
	for {
		conn, err := p.local.Accept()
		if err != nil {
			return // the listener was closed
		}
		all.Go(func() {
			defer conn.Close()
			if err := f.pass(ctx, conn.(*net.TCPConn), p.remote); err != nil && ctx.Err() == nil {
				f.report(p.remote, err)
			}
		})
	}
}

// pass passes one connection on. If the sandbox is gone, the thread gets another one.
func (f *forwarding) pass(ctx context.Context, conn *net.TCPConn, remote uint16) error {
	to, err := f.client.DialPort(ctx, f.thread, remote)
	if arbe.Reason(err) == string(fault.NoSandbox) {
		if err = f.wake(ctx); err == nil {
			to, err = f.client.DialPort(ctx, f.thread, remote)
		}
	}
	if err != nil {
		_ = conn.SetLinger(0) // so that the program here sees a failed connection and not an empty answer
		return err
	}
	f.mu.Lock()
	clear(f.told)
	f.mu.Unlock()
	_ = arbe.Pass(ctx, conn, to) // both ends have seen how the connection ended
	return nil
}

// report says why a connection was not passed on. Programs try again, so it repeats a message only after a connection has
// succeeded.
func (f *forwarding) report(remote uint16, err error) {
	text := fmt.Sprintf("port %d: %s", remote, entry.Printable(f.app.explain(err).Error()))
	f.mu.Lock()
	said := f.told[text]
	f.told[text] = true
	f.mu.Unlock()
	if !said {
		f.app.say("%s", text)
	}
}
