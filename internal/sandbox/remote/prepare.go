package remote

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// MaxInput limits the input of a run, in bytes.
const MaxInput = 1 << 20

// setup creates the directories of a box as the user that commands run as. It prints the processor, and the keepers that the box
// already has. If the image's user is root or may use sudo, the image need not have the directories.
const setup = `umask 022
user="$(id -u):$(id -g)"
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
for dir in ` + sandbox.Workspace + ` ` + sandbox.Home + ` ` + protocol.Root + `; do
	if ! [ -d $dir ] || ! [ -O $dir ]; then
		as_root mkdir -p $dir && as_root chown "$user" $dir || { echo ` + setupFailed + `; exit 1; }
	fi
done
mkdir -p ` + protocol.Records + ` ` + protocol.Inbox + ` && chmod 700 ` + protocol.Root + ` || { echo ` + setupFailed + `; exit 1; }
uname -m
ls ` + protocol.Root + `
`

// setupFailed is what setup prints if it fails because of the image.
const setupFailed = "arbe-cannot-prepare"

// prepare gets a box ready for requests and finds its keeper. Repeating it is harmless.
func (d *Driver) prepare(ctx context.Context, ref string) error {
	out, code, err := d.run(ctx, ref, []string{"/bin/sh", "-c", setup}, nil)
	if err != nil {
		return err
	}
	if code != 0 && strings.Contains(string(out), setupFailed) {
		return fault.New(fault.Precondition, "the image of this sandbox cannot be prepared for commands",
			"use an image with "+sandbox.Workspace+", "+sandbox.Home+" and "+protocol.Root+" that belong to its user, or whose user may use sudo").
			Because(fmt.Errorf("exit code %d: %s", code, out))
	}
	words := strings.Fields(string(out))
	if len(words) == 0 || code != 0 {
		return unanswered(out, code)
	}
	keeper, err := ProgramFor(words[0])
	if err != nil {
		return err
	}
	installed := false
	for _, name := range words[1:] {
		installed = installed || protocol.Root+"/"+name == keeper.Path
	}
	if !installed {
		if err := d.install(ctx, ref, keeper); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keepers[ref] = keeper.Path
	return nil
}

// install copies the keeper into a box, so that it appears completely or not at all.
func (d *Driver) install(ctx context.Context, ref string, keeper Program) error {
	var parcel parcel
	for text := keeper.Text; len(text) > 0; {
		n := min(len(text), MaxInput)
		if err := d.send(ctx, ref, &parcel, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	script := `cat "$@" > "$0.$$" && chmod 755 "$0.$$" && mv "$0.$$" "$0" && rm -f "$@"`
	argv := append([]string{"/bin/sh", "-c", script, keeper.Path}, parcel.paths()...)
	out, code, err := d.run(ctx, ref, argv, nil)
	if err == nil && code != 0 {
		err = unanswered(out, code)
	}
	return err
}

// parcel is a file on its way into a box, in pieces.
type parcel struct {
	name   string
	pieces int
}

func (p *parcel) paths() []string {
	var paths []string
	for i := range p.pieces {
		paths = append(paths, fmt.Sprintf("%s/%s.%d", protocol.Inbox, p.name, i))
	}
	return paths
}

// send sends the next piece of a file.
func (d *Driver) send(ctx context.Context, ref string, p *parcel, piece []byte) error {
	if p.name == "" {
		p.name = strings.ToLower(rand.Text())
	}
	path := fmt.Sprintf("%s/%s.%d", protocol.Inbox, p.name, p.pieces)
	err := d.put(ctx, ref, path, piece)
	if err == nil {
		p.pieces++
	}
	return err
}

// put writes a file into the inbox of a box.
func (d *Driver) put(ctx context.Context, ref, path string, content []byte) error {
	if putter, ok := d.provider.(Putter); ok {
		return d.patiently(ctx, func(ctx context.Context) error { return putter.Put(ctx, ref, path, content) })
	}
	out, code, err := d.run(ctx, ref, []string{"/bin/sh", "-c", `cat > "$0"`, path}, content)
	if err == nil && code != 0 {
		err = unanswered(out, code)
		if strings.Contains(string(out), "No space left on device") {
			err = fault.New(fault.Exhausted, "the sandbox's disk is full", "delete files in it, or use a larger one")
		}
	}
	return err
}
