//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// Background processes stay when their command ends. If they use up the box's processes, or stop and kill everything
// they can, they are ended so that the box can serve the next command. This file finds and ends such processes, and
// leaves others alone.

// due reports whether it is time to repeat something that one of many callers does for all, and records that it is
// done.
func due(last *atomic.Int64, every time.Duration) bool {
	then, now := last.Load(), time.Now().UnixNano()
	return now-then >= int64(every) && last.CompareAndSwap(then, now)
}

// outlive reports whether a command is running that outlives this server.
func (l *commands) outlive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for run := range l.waited {
		if s, ok := run.(*supervised); ok && s.recorded {
			return true
		}
	}
	return false
}

func (l *commands) begin(run command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waited == nil {
		l.waited = map[command]bool{}
	}
	l.waited[run] = true
}

// inherit registers a command that nobody waits for, such as one of an earlier server.
func (l *commands) inherit(s *supervised) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving == nil {
		l.leaving = map[*supervised]bool{}
	}
	l.leaving[s] = true
}

// abandon ends the commands that only this server waits for, and releases the others.
func (l *commands) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for run := range l.waited {
		if s, ok := run.(*supervised); ok && s.recorded {
			if s.conn != nil {
				s.close()
			}
			continue
		}
		run.kill()
	}
	for s := range l.leaving {
		if s.conn != nil {
			s.close()
		}
	}
}

// leave records that nobody waits for a command any more.
func (l *commands) leave(run command) {
	run.forget()
	l.mu.Lock()
	delete(l.waited, run)
	l.mu.Unlock()
	if s, ok := run.(*supervised); ok && s.group != "" && s.exists() {
		l.inherit(s)
	}
}

// leftover has processes that nobody waits for: those of one command if there are control groups, otherwise those of
// all commands.
type leftover struct {
	pids []int
	end  func()
}

// leftovers returns the processes in a supervised container that nobody waits for.
func (c *container) leftovers() (list []leftover) {
	l := &c.commands
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.cgroup == "" {
		return c.strays()
	}
	for s := range l.leaving {
		if pids, err := members(s.cgroups.dir(killer, s.group)); len(pids) > 0 {
			list = append(list, leftover{pids, s.kill})
		} else if s.forget(); err != nil || !s.exists() {
			delete(l.leaving, s)
		}
	}
	return list
}

// exists reports whether the command's control group exists.
func (s *supervised) exists() bool {
	_, err := os.Stat(s.cgroups.dir(killer, s.group))
	return err == nil
}

// strays returns the processes of a container that do not descend from a command that someone waits for.
func (c *container) strays() []leftover {
	waited := []int{c.process.Pid}
	for run := range c.commands.waited {
		waited = append(waited, run.(*supervised).pid)
	}
	list := func() (pids []int) {
		table := processes()
		ours := map[int]bool{c.process.Pid: true}
		for _, pid := range waited[1:] {
			for _, p := range descendants(pid, table) {
				ours[p] = true
			}
		}
		for _, pid := range descendants(c.process.Pid, table) {
			if !ours[pid] {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	pids := list()
	if len(pids) == 0 {
		return nil
	}
	return []leftover{{pids, func() { killAll(list, signalProcess) }}}
}

// makeRoom ends leftovers, largest first, if the box has hardly any processes left and the leftovers use half of them.
func (c *container) makeRoom(g cgroups) {
	limit := c.limits.PIDs
	if c.cgroup != "" && g.count(c.cgroup) < limit*9/10 {
		return
	}
	list, sum := c.leftovers(), 0
	for _, left := range list {
		sum += len(left.pids)
	}
	// Less than above, because the limit also counts threads and those of process 1, and sum does not.
	if c.cgroup == "" && sum < limit*3/4 {
		return
	}
	for sum >= limit/2 {
		largest := 0
		for i := range list {
			if len(list[i].pids) > len(list[largest].pids) {
				largest = i
			}
		}
		list[largest].end()
		sum -= len(list[largest].pids)
		list[largest].pids = nil
	}
}

// endLeftovers ends all leftovers, and reports whether there were any. It tries several times, because without control
// groups a process that forks may be missed.
func (c *container) endLeftovers() (found bool) {
	for range 10 {
		list := c.leftovers()
		if len(list) == 0 {
			break
		}
		found = true
		for _, left := range list {
			left.end()
		}
	}
	return found
}

// tidyEvery is the time between two searches for control groups in which everything has ended. It is not shorter,
// because a search checks every group that a command left, and a box may have a thousand.
const tidyEvery = 5 * time.Second

// guard protects a command from leftovers until the command has ended.
func (c *container) guard(g cgroups, s *supervised) {
	every := 100 * time.Millisecond
	if c.cgroup == "" {
		every = 500 * time.Millisecond // because each check reads all processes of the machine
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		if due(&c.commands.guarded, every) {
			c.makeRoom(g)
		}
		if c.cgroup != "" && due(&c.commands.tidied, tidyEvery) {
			c.leftovers() // forgets those that have ended
		}
		// Do this only if something stops everything it can, because a command may also stop itself.
		if s.stopped() && c.underAttack() && c.endLeftovers() {
			for _, pid := range s.members() {
				signalProcess(pid, unix.SIGCONT)
			}
		}
	}
}

// members returns the processes that the command started.
func (s *supervised) members() []int {
	if s.group == "" {
		return descendants(s.pid, processes())
	}
	pids, _ := members(s.cgroups.dir(killer, s.group)) // none if it has ended
	return pids
}

// endAttackers ends the leftovers of a box in which a command was killed, if they seem to have killed it.
func (c *container) endAttackers(s *supervised) {
	if s.killedByOthers() && len(c.leftovers()) > 0 && c.underAttack() {
		c.endLeftovers()
	}
}

// canaryPatience is how long a canary may take. A canary sleeps for a tenth of that.
const canaryPatience = time.Second

// underAttack reports whether something in the box kills or stops everything it can. It starts processes that do
// nothing for a while and checks whether they survive: several, because killers also kill each other.
func (c *container) underAttack() bool {
	for range 3 {
		if c.loseCanary() {
			return true
		}
	}
	return false
}

func (c *container) loseCanary() bool {
	ctx, cancel := context.WithTimeout(context.Background(), canaryPatience)
	defer cancel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer null.Close()
	s := &supervised{c: c, done: make(chan struct{})}
	defer func() { // also kills it
		s.closePidfd()
		if s.control != nil {
			s.control.Close()
		}
		if s.conn != nil {
			s.conn.Close()
		}
	}()
	stub := supervisor.Command{Dir: "/", UID: c.who.agent, GID: c.who.agent, Canary: true}
	if err := s.makeStub(ctx, stub, fate{}, streams{null, null, null}, nil); err != nil {
		_, killed := errors.AsType[*startFailure](err)
		return killed
	}
	if _, err := s.control.Write([]byte{0}); err != nil {
		return true
	}
	select {
	case <-s.done:
		return s.reported && (s.status.Signaled() || s.status.ExitStatus() != 0)
	case <-ctx.Done(): // it was stopped, unless the machine is slow
		return s.stopped()
	}
}
