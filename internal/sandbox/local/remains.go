//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A container that was killed need not end: it stays, dead, while a process of it is stuck in the kernel
// or while the parent of one does not reap it, and that parent may be any program on the machine. Nobody
// waits for that. Every start of a box is a container of its own, with a name, a control group and a
// directory that no other start has; so the dead one is in nobody's way, and whoever ends something next
// tries to clear it away again. Its directory stays that long, to be found by.

// dying is how long something that was killed is waited for.
const dying = time.Second

// errDying is the end of a container that was killed and has not ended yet.
var errDying = errors.New("it was killed, and has not ended")

// containers lists what there is of a box's containers, or of all of them when box is empty: the
// directories in the place with a dot in their name, see [box.start].
func (p *place) containers(box string) (ids []string) {
	entries, _ := os.ReadDir(p.run)
	for _, e := range entries {
		if owner, _, ok := strings.Cut(e.Name(), "."); ok && (box == "" || box == owner) {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// end ends containers, in whatever state they are. What can be cleared away now is; the rest is logged,
// and left for the next time.
func (p *place) end(ctx context.Context, ids []string) {
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			if err := p.endOne(ctx, id); err != nil {
				p.log.Warn("a sandbox has ended, but not all of it could be cleared away yet", "container", id, "cause", err)
			}
		})
	}
	wg.Wait()
}

func (p *place) endOne(ctx context.Context, id string) error {
	dir := filepath.Join(p.run, id)
	dead := p.runtime.kill(ctx, id)
	// Whether it has ended or not, the files are free for the next container.
	if err := unmountBelow(dir); err != nil {
		return err
	}
	if dead != nil {
		return dead
	}
	if err := p.runtime.delete(ctx, id); err != nil {
		return err
	}
	if p.group != "" {
		if err := p.cgroups.remove(p.group + "/" + id); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// filesIn is where a container's directory shows the box's files, as root.
func filesIn(dir string) string { return filepath.Join(dir, "files") }

// sweep ends what runs in the place and clears it away.
func (p *place) sweep(ctx context.Context) error {
	if p.group != "" { // which holds also what no directory tells of any more
		if err := p.cgroups.kill(p.group, dying); err != nil {
			p.log.Warn("processes of an earlier server's sandboxes do not end yet", "cause", err)
		}
	}
	ids := p.containers("")
	if len(ids) > 0 {
		p.log.Info("ending sandboxes that an earlier server left", "containers", ids)
	}
	p.end(ctx, ids)
	return p.clear()
}

// clear removes the run directory and the control group, but for what says where dead containers are.
func (p *place) clear() error {
	if err := unmountBelow(p.run); err != nil {
		return err
	}
	keep := p.containers("")
	if p.group != "" {
		if err := p.cgroups.remove(p.group); err != nil {
			p.log.Warn("a control group stays behind", "group", p.group, "cause", err)
		}
	}
	if len(keep) == 0 {
		return os.RemoveAll(p.run)
	}
	keep = append(keep, filepath.Base(p.runtime.state), lockName)
	entries, err := os.ReadDir(p.run)
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(p.run, e.Name())))
		}
	}
	return err
}
