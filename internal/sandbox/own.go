package sandbox

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// errOtherBox reports that the repository asks for another box than the one into which it was cloned: one with an image
// or with limits. Its recipe is then preparing.wanted.
var errOtherBox = errors.New("the repository asks for another box")

// with returns the recipe with the defaults of its repository.
func (r Recipe) with(d Defaults) Recipe {
	if r.Directory == "" {
		r.Directory = d.Directory
	}
	if r.Start == "" && d.Start != "" {
		r.Start, r.startIn, r.unreviewed = d.Start, d.StartIn, true
	}
	r.env = d.Env
	return r
}

// startDirectory returns the absolute path of the directory in which the start script runs.
func (r Recipe) startDirectory() string {
	if r.unreviewed && r.Directory == "" {
		return path.Join(Workspace, r.startIn)
	}
	return r.directory()
}

// findDefaults reads what the first repository says about its sandboxes. If it asks for another box, the error is
// errOtherBox.
func (p *preparing) findDefaults() error {
	p.own = repositoryFile{}
	list := p.recipe.checkouts()
	if len(list) == 0 {
		return nil
	}
	folder := list[0].Folder
	for _, name := range defaultFiles {
		text, err := p.read(path.Join(Workspace, folder, name))
		if err != nil {
			return err
		}
		if text == nil {
			continue
		}
		own, err := parseDefaults(text, folder)
		switch {
		case err != nil && p.recipe.Setup != "":
			p.say("defaults of "+name, fmt.Sprintf("not used, because it cannot be read: %v", err))
			return nil
		case err != nil:
			return fault.Newf(fault.Precondition, "correct it in the repository, or give the environment its own setup script",
				"the sandbox could not be prepared: %s of the repository cannot be read: %v", name, err)
		}
		p.own, p.ownFile = own, name
		return p.adopt(name)
	}
	return nil
}

// adopt uses the defaults of a file, and tells the user which.
func (p *preparing) adopt(name string) error {
	d, instead := &p.own, []string{}
	drop := func(because bool, names ...string) bool {
		if !because {
			return false
		}
		d.used = slices.DeleteFunc(d.used, func(field string) bool {
			gone := slices.Contains(names, field)
			if gone {
				instead = append(instead, field)
			}
			return gone
		})
		return true
	}
	wanted := p.recipe
	if drop(p.recipe.Setup != "", "setup", "postCreateCommand") {
		d.setup = ""
	}
	drop(p.recipe.Start != "", "start", "postStartCommand")
	drop(p.recipe.Directory != "", "directory", "workspaceFolder")
	images := false
	if s, states := p.driver.(Stating); states {
		images = s.Guarantees().Images
	}
	switch {
	case d.image == "" || p.chosen:
	case drop(p.recipe.Image != "", "image"):
	case !images:
		d.used = slices.DeleteFunc(d.used, func(field string) bool { return field == "image" })
		d.unused = append(d.unused, "image (sandboxes of the driver "+p.recipe.driver()+" have none)")
	default:
		wanted.Image = d.image
	}
	if !p.chosen {
		wanted.Limits = wanted.Limits.or(d.limits)
	}
	if wanted.Image != p.recipe.Image || wanted.Limits != p.recipe.Limits {
		p.wanted = wanted
		return errOtherBox
	}
	var lines []string
	for _, part := range []struct {
		text  string
		names []string
	}{{"used", d.used}, {"not used, because the environment has its own", instead}, {"not used, because arbe does not know it", d.unused}} {
		if len(part.names) > 0 {
			lines = append(lines, part.text+": "+strings.Join(part.names, ", "))
		}
	}
	if len(lines) > 0 {
		p.say("defaults of "+name, strings.Join(lines, "\n"))
	}
	return nil
}

// or returns the limits with defaults for those that are not set.
func (l Limits) or(d Limits) Limits {
	for _, n := range []struct{ to, from *int }{{&l.MemoryMB, &d.MemoryMB}, {&l.DiskMB, &d.DiskMB}, {&l.PIDs, &d.PIDs}} {
		if *n.to == 0 {
			*n.to = *n.from
		}
	}
	if l.CPUs == 0 {
		l.CPUs = d.CPUs
	}
	return l
}

// say records a step that runs nothing.
func (p *preparing) say(name, output string) {
	p.watch.step(name)
	_, _ = fmt.Fprintln(p.watch, output) // never fails
	step := entry.PreparationStep{Name: name, Output: output + "\n"}
	p.steps, p.boot = append(p.steps, step), append(p.boot, step)
}

// read returns the contents of a file of the box; nil if the file does not exist.
func (p *preparing) read(name string) ([]byte, error) {
	file, err := p.driver.Download(p.ctx, p.ref, name)
	if code := fault.CodeOf(err); code == fault.NotFound || code == fault.Invalid { // Invalid: not a regular file
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxDefaults+1))
	if len(text) > maxDefaults {
		return nil, fault.Newf(fault.Precondition, "shorten it", "%s has more than %d KiB", name, maxDefaults>>10)
	}
	return text, err
}
