//go:build linux

package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file keeps the files of secrets; see [sandbox.Command].Secrets. They are in a file system in memory of the
// container, which belongs to the box's root user, so that commands can neither replace nor add files. No layer, image
// or disk contains them, and they end with the container at the latest.

// validSecret is the form of the name of a secret's file. Names with a dot at the beginning are for files that are
// being written.
var validSecret = lazyregexp.New(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)

// placeSecrets writes the files of a command that is about to start. They stay until dropSecrets was called as often.
func (c *container) placeSecrets(files map[string]string) (err error) {
	s := &c.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, err := c.secretFolder()
	if err != nil {
		return err
	}
	defer dir.Close()
	for name, value := range files {
		if s.held[name] > 0 && c.hasSecret(dir, name, value) {
			continue
		}
		if err := c.placeSecret(dir, name, value); err != nil {
			c.sweepSecrets(dir)
			return fmt.Errorf("write the secret %s: %w", name, err)
		}
	}
	if s.held == nil {
		s.held = map[string]int{}
	}
	for name := range files {
		s.held[name]++
	}
	return nil
}

// secretFolder opens the folder of the files. It fails if the container has ended. The caller holds c.secrets.mu.
func (c *container) secretFolder() (*os.File, error) {
	return c.open(c.root, sandbox.SecretFolder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// hasSecret reports whether a file has a value.
func (c *container) hasSecret(dir *os.File, name, value string) bool {
	var content []byte
	err := c.asAgent(func() error {
		f, err := c.open(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		content = make([]byte, len(value)+1)
		n, _ := f.ReadAt(content, 0) // a short read is another value, or the end
		content = content[:n]
		return nil
	})
	return err == nil && string(content) == value
}

// placeSecret writes one file. It appears completely or not at all.
func (c *container) placeSecret(dir *os.File, name, value string) error {
	temp := "." + rand.Text()
	return c.asBoxRoot(func() error {
		f, err := c.open(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o400)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		if asRoot() {
			// On another thread, because this one has no right to give files away.
			done := make(chan error)
			go func() { done <- f.Chown(int(c.who.hostUID), int(c.who.hostGID)) }()
			err = errors.Join(err, <-done)
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), name)
		}
		if err != nil {
			_ = unix.Unlinkat(int(dir.Fd()), temp, 0) // the next sweep removes it
		}
		return err
	})
}

// asBoxRoot calls do with the file permissions of the box's root user.
func (c *container) asBoxRoot(do func() error) error { return as(c.who.rootUID, c.who.rootUID, do) }

// dropSecrets records that a command that received files has ended, and removes the files that no command receives.
func (c *container) dropSecrets(names []string) {
	if c.ownKernel {
		return
	}
	s := &c.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.held[name]--; s.held[name] <= 0 {
			delete(s.held, name)
		}
	}
	if dir, err := c.secretFolder(); err == nil { // otherwise the container has ended, and its memory with it
		defer dir.Close()
		c.sweepSecrets(dir)
	}
}

// inheritSecrets records a command of an earlier server, which may receive any file.
func (c *container) inheritSecrets(run *supervised) {
	c.secrets.mu.Lock()
	defer c.secrets.mu.Unlock()
	c.secrets.unknown++
	run.inherited = true
}

// keepSecrets leaves the files to the next server. It comes before the connections to the commands are closed, because this
// server would then take them for ended.
func (c *container) keepSecrets() {
	c.secrets.mu.Lock()
	defer c.secrets.mu.Unlock()
	c.secrets.unknown++
}

// sweepSecrets removes the files that no command receives. The caller holds c.secrets.mu.
func (c *container) sweepSecrets(dir *os.File) {
	names, _ := dir.Readdirnames(-1)
	_ = c.asBoxRoot(func() error {
		for _, name := range names {
			if strings.HasPrefix(name, ".") || c.secrets.held[name] == 0 && c.secrets.unknown == 0 {
				_ = unix.Unlinkat(int(dir.Fd()), name, 0) // fails if the container has ended
			}
		}
		return nil
	})
}

// leave records that a command has ended and nobody waits for it any more.
func (c *container) leave(run command) {
	c.commands.leave(run)
	s, ok := run.(*supervised)
	if !ok || len(s.secrets) == 0 && !s.inherited {
		return
	}
	if s.inherited {
		c.secrets.mu.Lock()
		c.secrets.unknown--
		c.secrets.mu.Unlock()
	}
	c.dropSecrets(s.secrets)
}
