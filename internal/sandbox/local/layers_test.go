//go:build linux

package local_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// newLayered opens a driver that keeps layers.
func newLayered(t testing.TB, cfg local.Config) *local.Driver {
	t.Helper()
	d := newDriver(t, cfg)
	if !d.Guarantees().Layers {
		closeDriver(t, d)
		t.Skip("this machine's kernel cannot map the ids of a disk")
	}
	return d
}

// ofAda are the labels of boxes of one environment.
var ofAda = sandbox.Labels{Installation: "i", House: "ada", Environment: "env", Thread: "t"}

// kept makes a box, runs a script in it, and keeps its files as a layer under a key.
func kept(t testing.TB, d *local.Driver, id, key, script string) (ref string) {
	t.Helper()
	ref = create(t, d, sandbox.Spec{ID: id, Labels: ofAda})
	sh(t, d, ref, script)
	if err := d.KeepLayer(t.Context(), ref, key, []byte("a note")); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return ref
}

// begun makes a box that starts from a layer.
func begun(t testing.TB, d *local.Driver, id, key string) (ref string, l sandbox.Layer, err error) {
	t.Helper()
	ref = create(t, d, sandbox.Spec{ID: id, Labels: ofAda})
	l, err = d.TakeLayer(t.Context(), ref, key)
	return ref, l, err
}

// leftovers returns the incomplete layers in a directory.
func leftovers(dir string) (found []string) {
	for _, pattern := range []string{"layers/making-*", "layers/removing-*", "boxes/*/layer.ext4"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		found = append(found, names...)
	}
	return found
}

func TestALayer(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	d := newLayered(t, local.Config{Dir: dir})
	defer func() { closeDriver(t, d) }()
	first := kept(t, d, word("first"), "key", `echo work > f; ln f hard; ln -s f link; mkfifo pipe; mkdir -m 700 sub; echo x > sub/x; chmod 640 f; echo home > ~/f; nohup sleep 5000 >/dev/null 2>&1 &`)
	if got := sh(t, d, first, "cat f ~/f; ps ax | grep -c '[s]leep 5000'; echo later > f"); got != "work\nhome\n0\n" {
		t.Errorf("the box whose files were kept has %q", got)
	}

	ref, l, err := begun(t, d, word("second"), "key")
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if string(l.Note) != "a note" || time.Since(l.MadeAt) > patience || l.Size == 0 || l.Labels.House != "ada" || l.Labels.Thread != "" {
		t.Errorf("the layer is %+v", l)
	}
	const all = `stat -c '%n %u %g %a %h' f hard sub sub/x ~/f; readlink link; test -p pipe && cat f sub/x ~/f`
	want := "f 1000 1000 640 2\nhard 1000 1000 640 2\nsub 1000 1000 700 2\nsub/x 1000 1000 644 1\n/home/agent/f 1000 1000 644 1\nf\nwork\nx\nhome\n"
	if got := sh(t, d, ref, "umask; "+all); !strings.HasSuffix(got, want) {
		t.Errorf("the second box has\n%s\nwant\n%s", got, want)
	}
	if got := sh(t, d, ref, "echo more >> f && rm -r sub && mkdir sub && echo own > own && stat -c %u own && df -m . | tail -1 | wc -w"); got != "1000\n6\n" {
		t.Errorf("writing there says %q", got)
	}
	if err := d.Upload(t.Context(), ref, "sub/uploaded", 0o600, strings.NewReader("uploaded\n")); err != nil {
		t.Error(fault.From(err).Detail())
	}
	if got := sh(t, d, ref, "cat sub/uploaded; stat -c %u sub/uploaded"); got != "uploaded\n1000\n" {
		t.Errorf("what was uploaded: %q", got)
	}
	if owners := owners(t, "f"); len(owners) != 2 {
		t.Errorf("on the host, the files of two boxes belong to %v", owners)
	}
	if got := sh(t, d, first, "cat f"); got != "later\n" {
		t.Errorf("the first box has %q", got)
	}
	if err := d.Destroy(t.Context(), first); err != nil {
		t.Error(err)
	}

	t.Run("stays when its box is destroyed, and a box with it is whole after a restart", func(t *testing.T) {
		closeDriver(t, d)
		d = newLayered(t, local.Config{Dir: dir})
		if got := sh(t, d, ref, "cat f own sub/uploaded ~/f"); got != "work\nmore\nown\nuploaded\nhome\n" {
			t.Errorf("the second box has %q", got)
		}
		third, _, err := begun(t, d, word("third"), "key")
		if err != nil || sh(t, d, third, "cat f hard") != "work\nwork\n" {
			t.Errorf("a third box cannot begin with it: %v", err)
		}
		fourth := create(t, d, sandbox.Spec{ID: word("fourth"), Labels: ofAda})
		if err := d.KeepLayer(t.Context(), third, "copied", nil); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if _, err := d.TakeLayer(t.Context(), fourth, "copied"); err != nil || sh(t, d, fourth, "stat -c %u f; cat f") != "1000\nwork\n" {
			t.Errorf("a layer of a box that began with one: %v", err)
		}
	})
	t.Run("is nobody else's", func(t *testing.T) {
		for name, spec := range map[string]sandbox.Spec{
			"another house":        {Labels: sandbox.Labels{Installation: "i", House: "bob", Environment: "env"}},
			"another environment":  {Labels: sandbox.Labels{Installation: "i", House: "ada", Environment: "other"}},
			"another installation": {Labels: sandbox.Labels{Installation: "j", House: "ada", Environment: "env"}},
			"another size of disk": {Labels: ofAda, Limits: sandbox.Limits{DiskMB: 80}},
		} {
			spec.ID = strings.ReplaceAll(name, " ", "-")
			box := create(t, d, spec)
			if _, err := d.TakeLayer(t.Context(), box, "key"); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("%s: %v", name, err)
			}
			if got := sh(t, d, box, "ls"); got != "" {
				t.Errorf("%s: the box has %q", name, got)
			}
		}
		if _, _, err := begun(t, d, "other-key", "another"); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("another key: %v", err)
		}
	})
	t.Run("is neither made nor taken while a command runs in the box", func(t *testing.T) {
		box := create(t, d, sandbox.Spec{ID: "busy", Labels: ofAda})
		began, end := make(chan struct{}, 1), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := d.Exec(context.Background(), box, sandbox.Command{Argv: []string{"sh", "-c", "echo ready; read x"}, Stdin: newGate(end), Stdout: &signalWriter{began}})
			ended <- err
		}()
		<-began
		if err := d.KeepLayer(t.Context(), box, "busy", nil); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("keeping: %v", err)
		}
		if _, err := d.TakeLayer(t.Context(), box, "key"); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("taking: %v", err)
		}
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("that is damaged is removed, and its box is as it was", func(t *testing.T) {
		kept(t, d, "good", "damaged", "echo good > f")
		damage(t, dir)
		box := create(t, d, sandbox.Spec{ID: "unharmed", Labels: ofAda})
		sh(t, d, box, "echo own > own")
		if _, err := d.TakeLayer(t.Context(), box, "damaged"); err == nil || fault.CodeOf(err) == fault.NotFound {
			t.Errorf("taking it: %v", err)
		}
		if got := sh(t, d, box, "ls; cat own"); got != "own\nown\n" {
			t.Errorf("the box has %q", got)
		}
		if _, err := d.TakeLayer(t.Context(), box, "damaged"); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("taking it again: %v", err)
		}
	})
	t.Run("can be dropped, again and again", func(t *testing.T) {
		list, err := d.Layers(t.Context(), sandbox.Labels{House: "ada"})
		if err != nil || len(list) == 0 {
			t.Fatalf("there are %+v (%v)", list, err)
		}
		for _, l := range append(list, list[0]) {
			if err := d.DropLayer(t.Context(), l.ID); err != nil {
				t.Error(err)
			}
		}
		if list, err = d.Layers(t.Context(), sandbox.Labels{}); err != nil || len(list) > 0 {
			t.Errorf("left: %+v (%v)", list, err)
		}
		if err := d.DropLayer(t.Context(), "../boxes/"+word("second")); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("dropping what is no layer: %v", err)
		}
	})
	boxes, err := d.List(t.Context(), sandbox.Labels{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		if err := d.Destroy(t.Context(), b.Ref); err != nil {
			t.Error(err)
		}
	}
	if left := append(leftovers(dir), traces(t, filepath.Base(filepath.Dir(dir)))); len(left) > 1 || strings.Contains(left[0], "loop device") {
		t.Errorf("left: %v", left)
	}
}

// owners returns the host's user ids that own a file in the running boxes of this test.
func owners(t *testing.T, name string) map[uint32]bool {
	t.Helper()
	found := map[uint32]bool{}
	for _, id := range []string{"first", "second"} {
		paths, _ := filepath.Glob("/run/arbe/*/" + word(id) + ".*/files/workspace/" + name)
		for _, path := range paths {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				t.Fatal(err)
			}
			found[st.Uid] = true
		}
	}
	return found
}

// damage overwrites the beginning of the disks of all layers.
func damage(t *testing.T, dir string) {
	t.Helper()
	disks, _ := filepath.Glob(filepath.Join(dir, "layers", "*", "disk.ext4"))
	for _, disk := range disks {
		f, err := os.OpenFile(disk, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 8192), 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// age makes the layers in a directory older than any may be.
func age(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "layers", "*", "layer.json"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, madeAt.ReplaceAll(text, []byte(`"MadeAt":"2001-01-01T00:00:00Z"`)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// madeAt matches the time in the description of a layer.
var madeAt = regexp.MustCompile(`"MadeAt":"[^"]*"`)

// fill returns a script that writes random bytes.
func fill(megabytes int) string {
	return fmt.Sprintf("head -c %d /dev/urandom > fill; sync", megabytes<<20)
}

func TestLayersTakeUpNoMoreThanTheyMay(t *testing.T) {
	needRoot(t)
	there := func(t *testing.T, d *local.Driver, keys ...string) (found string) {
		t.Helper()
		for _, key := range keys {
			ref, _, err := begun(t, d, "look-"+key, key)
			if err == nil {
				found += key
			} else if fault.CodeOf(err) != fault.NotFound {
				t.Error(fault.From(err).Detail())
			}
			if err := d.Destroy(t.Context(), ref); err != nil {
				t.Error(err)
			}
		}
		return found
	}
	t.Run("of one house: those that were not used for the longest time go", func(t *testing.T) {
		d := newLayered(t, local.Config{Dir: t.TempDir(), Layers: local.Layers{HouseMB: 46}})
		defer closeDriver(t, d)
		kept(t, d, "one", "a", fill(10))
		kept(t, d, "two", "b", fill(10))
		if got := there(t, d, "a"); got != "a" {
			t.Fatalf("there is %q", got)
		}
		kept(t, d, "three", "c", fill(25))
		if got := there(t, d, "a", "b", "c"); got != "ac" {
			t.Errorf("there are %q", got)
		}
		ref := create(t, d, sandbox.Spec{ID: "large", Labels: ofAda})
		sh(t, d, ref, fill(45))
		if err := d.KeepLayer(t.Context(), ref, "d", nil); fault.CodeOf(err) != fault.Exhausted || !strings.Contains(fault.From(err).Next, "environment_cache_house_mb") {
			t.Errorf("one that is too large: %v", err)
		}
		if got := there(t, d, "a", "c"); got != "ac" {
			t.Errorf("after one that is too large, there are %q", got)
		}
	})
	t.Run("together with the boxes of their house", func(t *testing.T) {
		// Each box holds 384 MiB besides its files. The house has room for two further copies of the layer, but only if
		// the layer itself gives way to the second one.
		d := newLayered(t, local.Config{Dir: t.TempDir(), HouseMB: 2000})
		defer closeDriver(t, d)
		of := func(id string) sandbox.Spec {
			return sandbox.Spec{ID: id, Labels: ofAda, Limits: sandbox.Limits{DiskMB: 2000}}
		}
		one := create(t, d, of("one"))
		sh(t, d, one, fill(300))
		if err := d.KeepLayer(t.Context(), one, "a", nil); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if err := d.Destroy(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		var boxes [3]string
		for i := range boxes {
			boxes[i] = create(t, d, of(fmt.Sprint("taker-", i)))
			sh(t, d, boxes[i], "echo own > own")
		}
		var taken [len(boxes)]error
		var all sync.WaitGroup
		for i, ref := range boxes {
			all.Go(func() { _, taken[i] = d.TakeLayer(t.Context(), ref, "a") })
		}
		all.Wait()
		took := 0
		for i, ref := range boxes {
			want := "own\n"
			switch fault.CodeOf(taken[i]) {
			case fault.Exhausted:
				if !strings.Contains(fault.From(taken[i]).Next, "house_disk_mb") {
					t.Errorf("it says %v; %s", taken[i], fault.From(taken[i]).Next)
				}
			case fault.NotFound: // the layer gave way before this box looked for it
			default:
				if taken[i] != nil {
					t.Error(fault.From(taken[i]).Detail())
				}
				took, want = took+1, "fill\n"
			}
			if got := sh(t, d, ref, "ls"); got != want {
				t.Errorf("after %v, a box has %q", taken[i], got)
			}
		}
		if took != 2 {
			t.Errorf("%d boxes took the layer", took)
		}
		houses, err := d.Occupied(t.Context())
		ada := houses["ada"]
		total := ada.Layers
		for _, size := range ada.Boxes {
			total += size
		}
		if err != nil || total > ada.Most {
			t.Errorf("the house takes up %d MiB of %d (%v)", total>>20, ada.Most>>20, err)
		}
	})
	t.Run("longer than they may", func(t *testing.T) {
		d := newLayered(t, local.Config{Dir: t.TempDir(), Layers: local.Layers{Age: time.Nanosecond}})
		defer closeDriver(t, d)
		kept(t, d, "one", "a", "true")
		if got := there(t, d, "a"); got != "" {
			t.Errorf("there is %q", got)
		}
	})
	t.Run("longer than they may, until they are made again", func(t *testing.T) {
		dir := t.TempDir()
		d := newLayered(t, local.Config{Dir: dir})
		defer closeDriver(t, d)
		old := func() bool {
			t.Helper()
			list, err := d.Layers(t.Context(), sandbox.Labels{})
			if err != nil || len(list) != 1 {
				t.Fatalf("there are %+v (%v)", list, err)
			}
			return list[0].Old
		}
		one := kept(t, d, "one", "a", "true")
		if old() {
			t.Error("a new one is old")
		}
		age(t, dir)
		if got := there(t, d, "a"); got != "" || !old() {
			t.Errorf("there is %q", got)
		}
		if err := d.KeepLayer(t.Context(), one, "a", nil); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if got := there(t, d, "a"); got != "a" || old() || len(leftovers(dir)) > 0 {
			t.Errorf("there is %q, and left are %v", got, leftovers(dir))
		}
	})
	t.Run("of a disk that others need", func(t *testing.T) {
		disk := smallDisk(t, 700)
		dir := filepath.Join(disk, "data")
		d := newLayered(t, local.Config{Dir: dir, FreeMB: 64})
		defer closeDriver(t, d)
		one := kept(t, d, "one", "a", fill(50))
		if err := d.Destroy(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Fatal(err)
		}
		ballast := int64(st.Bavail)*st.Bsize - 100<<20
		if err := os.WriteFile(filepath.Join(disk, "ballast"), bytes.Repeat([]byte{1}, int(ballast)), 0o600); err != nil {
			t.Fatal(err)
		}
		ref := create(t, d, sandbox.Spec{ID: "two", Labels: ofAda}) // needs 64 MiB, for which the layer is removed
		if got := sh(t, d, ref, "echo works"); got != "works\n" {
			t.Errorf("a box for which a layer gave way says %q", got)
		}
		if got, err := d.Layers(t.Context(), sandbox.Labels{}); err != nil || len(got) > 0 {
			t.Errorf("there are %v (%v)", got, err)
		}
		sh(t, d, ref, "head -c 45M /dev/urandom > fill; sync")
		if err := d.KeepLayer(t.Context(), ref, "b", nil); fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("a layer on a disk that is full: %v", err)
		}
		if got := sh(t, d, ref, "wc -c < fill"); got != "47185920\n" || len(leftovers(dir)) > 0 {
			t.Errorf("then the box has %q, and there are %v", got, leftovers(dir))
		}
	})
}

// keeper is a server that makes layers until it is killed.
func keeper(dir string) {
	ctx := context.Background()
	d, err := local.New(ctx, local.Config{Dir: dir})
	for n := 0; err == nil; n++ {
		var ref string
		spec := sandbox.Spec{ID: fmt.Sprint("kept-", n), Labels: ofAda, Limits: sandbox.Limits{DiskMB: 64}}
		if ref, err = d.Create(ctx, spec); err == nil {
			_, err = d.Exec(ctx, ref, sandbox.Command{Argv: []string{"sh", "-c", "head -c 30M /dev/urandom > fill; sha256sum < fill > sum"}})
		}
		if err == nil {
			err = d.KeepLayer(ctx, ref, "key", nil)
		}
		if err == nil {
			fmt.Println("kept")
			_, err = io.ReadFull(os.Stdin, make([]byte, 1))
		}
		if err == nil {
			var l []sandbox.Layer
			if l, err = d.Layers(ctx, sandbox.Labels{}); err == nil {
				err = d.DropLayer(ctx, l[0].ID)
			}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func TestAServerThatIsKilledWhileItMakesALayer(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	closeDriver(t, newLayered(t, local.Config{Dir: dir}))
	// The server is killed when a file of the layer appears, each time at another moment of the copy.
	for _, sign := range []string{"layers/making-*", "layers/making-*/disk.ext4", "layers/making-*/layer.json.new", "layers/[0-9a-f]*/layer.json", "layers/removing-*"} {
		t.Run("at "+filepath.Base(sign), func(t *testing.T) {
			server := exec.Command(os.Args[0])
			server.Env = append(os.Environ(), "ARBE_TEST_KEEPER_DIR="+dir)
			stdin, err := server.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			lines := 1
			if strings.Contains(sign, "removing") {
				lines = 2 // it removes the first layer, and makes another one
				if _, err := stdin.Write([]byte("\n")); err != nil {
					t.Fatal(err)
				}
			}
			passed := make(chan struct{})
			go func() {
				defer close(passed)
				for said := bufio.NewScanner(stdout); lines > 0 && said.Scan(); lines-- {
					if said.Text() != "kept" {
						t.Errorf("the server says %s", said.Text())
					}
				}
			}()
			for waiting := true; waiting; {
				select {
				case <-passed: // it was faster than this loop
					waiting = false
				case <-time.After(100 * time.Microsecond):
					found, _ := filepath.Glob(filepath.Join(dir, sign))
					waiting = len(found) == 0
				}
			}
			_ = server.Process.Kill()
			<-passed
			_ = server.Wait()

			d := newLayered(t, local.Config{Dir: dir})
			defer closeDriver(t, d)
			if left := leftovers(dir); len(left) > 0 {
				t.Errorf("the next server finds %v", left)
			}
			ref, _, err := begun(t, d, "next", "key")
			switch {
			case err == nil:
				if got := sh(t, d, ref, "sha256sum < fill | cmp - sum && echo whole"); got != "whole\n" {
					t.Errorf("half a layer was left: %s", got)
				}
			case fault.CodeOf(err) != fault.NotFound:
				t.Error(fault.From(err).Detail())
			}
			boxes, err := d.List(t.Context(), sandbox.Labels{})
			for _, b := range boxes {
				if b.ID != "next" && sh(t, d, b.Ref, "sha256sum < fill | cmp - sum && echo whole") != "whole\n" {
					t.Errorf("the box %s, whose files were to be kept, is not whole", b.ID)
				}
				if err := d.Destroy(t.Context(), b.Ref); err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				t.Error(err)
			}
			layers, _ := d.Layers(t.Context(), sandbox.Labels{})
			for _, l := range layers {
				if err := d.DropLayer(t.Context(), l.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if left := traces(t, filepath.Base(filepath.Dir(dir))); left != "" {
		t.Errorf("left on the machine:\n%s", left)
	}
}

// BenchmarkSecondBoxOfAnEnvironment compares a box that starts from a layer with one that is built from the beginning.
// Building writes 1,000 files and 50 MB, and does nothing else.
func BenchmarkSecondBoxOfAnEnvironment(b *testing.B) {
	needRoot(b)
	d := newLayered(b, local.Config{Dir: b.TempDir()})
	defer closeDriver(b, d)
	const setup = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo $i > f$i; done; head -c 50M /dev/urandom > large"
	once := func(id string, prepare func(ref string)) time.Duration {
		var ref string
		took := timed(func() {
			ref = create(b, d, sandbox.Spec{ID: id, Labels: ofAda, Limits: sandbox.Limits{DiskMB: 10240}})
			prepare(ref)
			execOnce(b, d, ref)
		})
		if err := d.Destroy(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
		return took
	}
	key := fmt.Sprintf("%x", sha256.Sum256(nil))
	once("bench", func(ref string) {
		sh(b, d, ref, setup)
		if err := d.KeepLayer(b.Context(), ref, key, nil); err != nil {
			b.Fatal(fault.From(err).Detail())
		}
	})
	compareAs(b, "cached", "built", func(turn int) time.Duration {
		return once(fmt.Sprint("cached-", turn), func(ref string) {
			if _, err := d.TakeLayer(b.Context(), ref, key); err != nil {
				b.Fatal(fault.From(err).Detail())
			}
		})
	}, func(turn int) time.Duration {
		return once(fmt.Sprint("built-", turn), func(ref string) { sh(b, d, ref, setup) })
	})
}
