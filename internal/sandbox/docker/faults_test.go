//go:build linux

package docker_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	images "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/docker/dockertest"
)

// wire is a connection to an engine that a test can disturb.
type wire struct {
	dir string

	mu     sync.Mutex
	faults []*failure
}

// failure describes how requests fail.
type failure struct {
	on     *regexp.Regexp // matches "METHOD path", without the version
	status int            // the status of the answer, for which the engine is not asked; 0 breaks the connection
	body   string
	hang   bool   // the answer never comes
	cut    bool   // the engine acts, but its answer is lost
	before func() // happens before the request, which succeeds
	times  int    // 0 means always
	done   int
}

// disturb returns a connection to an engine that fail can disturb.
func disturb(t *testing.T, e *dockertest.Engine) *wire {
	t.Helper()
	dir, err := os.MkdirTemp("", "wire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &wire{dir: dir}
	l, err := net.Listen("unix", dir+"/wire.sock")
	if err != nil {
		t.Fatal(err)
	}
	to := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", e.Socket())
		}},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		f := w.match(r)
		switch {
		case f == nil:
			to.ServeHTTP(out, r)
		case f.before != nil:
			f.before()
			to.ServeHTTP(out, r)
		case f.hang:
			<-r.Context().Done()
		case f.cut:
			to.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case f.status == 0:
			panic(http.ErrAbortHandler)
		default:
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(f.status)
			_, _ = out.Write([]byte(f.body))
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return w
}

func (w *wire) host() string { return "unix://" + w.dir + "/wire.sock" }

// fail makes requests fail until end is called.
func (w *wire) fail(f failure) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = []*failure{&f}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faults = nil
	}
}

var version = regexp.MustCompile(`^/v1\.[0-9]+`)

func (w *wire) match(r *http.Request) *failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if f.on.MatchString(r.Method+" "+version.ReplaceAllString(r.URL.Path, "")) && (f.times == 0 || f.done < f.times) {
			f.done++
			return f
		}
	}
	return nil
}

var (
	anything   = regexp.MustCompile(``)
	inspecting = regexp.MustCompile(`^GET /containers/[0-9a-f]+/json$`)
	creating   = regexp.MustCompile(`^POST /containers/create$`)
	starting   = regexp.MustCompile(`^POST /containers/[^/]*/start$`)
	executing  = regexp.MustCompile(`^POST /exec/`)
)

func TestWhatIsNotKnownIsNotGone(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	w := disturb(t, e)
	d := opened(t, w.host())
	ref := create(t, d, "probed")
	probe := func(t *testing.T, want sandbox.Liveness) {
		t.Helper()
		within := time.Minute
		if want == sandbox.Unknown {
			within = 2 * time.Second // an answer may never come
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if got, err := d.Probe(ctx, ref); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	const noSuch = `{"message":"No such container: x"}`
	for name, f := range map[string]failure{
		"the engine is away":         {on: anything},
		"the engine fails":           {on: inspecting, status: 500, body: `{"message":"broken"}`},
		"the engine refuses":         {on: inspecting, status: 403, body: `{"message":"forbidden"}`},
		"the address is wrong":       {on: inspecting, status: 404, body: `{"message":"page not found"}`},
		"something else answers":     {on: inspecting, status: 200, body: "{}"},
		"the answer never comes":     {on: inspecting, hang: true},
		"the answer is lost":         {on: inspecting, cut: true},
		"another engine answers":     {on: regexp.MustCompile(`/info$`), status: 200, body: `{"ID":"another"}`},
		"it then no longer answers":  {on: regexp.MustCompile(`/info$|/json$`), status: 404, body: noSuch},
		"it denies without evidence": {on: inspecting, status: 404, body: "<html>not found</html>"},
	} {
		t.Run(name, func(t *testing.T) {
			defer w.fail(f)()
			want := sandbox.Unknown
			if name == "another engine answers" {
				want = sandbox.Live // because it has the box
			}
			probe(t, want)
		})
	}
	probe(t, sandbox.Live)
	if _, err := e.ContainerRemove(t.Context(), ref, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	func() {
		defer w.fail(failure{on: regexp.MustCompile(`/info$`), status: 200, body: `{"ID":"another"}`})()
		probe(t, sandbox.Unknown)
	}()
	probe(t, sandbox.Gone)
	_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}})
	wantCode(t, err, fault.NotFound)
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

func TestACreationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	for name, c := range map[string]struct {
		fault failure
		want  fault.Code
	}{
		"its disk is full":        {failure{on: creating, status: 500, body: `{"message":"mkdir /x: no space left on device"}`}, fault.Exhausted},
		"its disk is full then":   {failure{on: starting, status: 500, body: `{"message":"write /x: no space left on device"}`}, fault.Exhausted},
		"it never starts":         {failure{on: starting, hang: true}, fault.Unavailable},
		"the engine fails":        {failure{on: starting, status: 500, body: `{"message":"broken"}`}, fault.Unavailable},
		"the engine is cut off":   {failure{on: starting}, fault.Unavailable},
		"the runtime is missing":  {failure{on: starting, status: 400, body: `{"message":"unknown or invalid runtime name: x"}`}, fault.Precondition},
		"the creation is refused": {failure{on: creating, status: 403, body: `{"message":"authorization denied by plugin"}`}, fault.Precondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := disturb(t, e)
			d := opened(t, w.host(), func(config *docker.Config) {
				if c.want == fault.Unavailable { // the others do not wait
					config.StartLimit = 3 * time.Second
				}
			})
			w.fail(c.fault)
			labels := sandbox.Labels{Installation: "failing: " + name}
			_, err := d.Create(t.Context(), sandbox.Spec{ID: "failing", Labels: labels, Limits: small})
			wantCode(t, err, c.want)
			if left, err := d.List(t.Context(), labels); len(left) != 0 || err != nil {
				t.Errorf("%v is left (%v)", left, err)
			}
		})
	}
}

func TestACreationWhoseAnswerIsLostFindsItsBox(t *testing.T) {
	t.Parallel()
	w := disturb(t, sharedEngine(t))
	d := opened(t, w.host())
	w.fail(failure{on: creating, cut: true, times: 1})
	ref := create(t, d, "lost")
	if again := create(t, d, "lost"); again != ref {
		t.Errorf("%s, then %s", ref, again)
	}
}

func TestAnEngineThatIsAwayForAMomentIsAskedAgain(t *testing.T) {
	t.Parallel()
	w := disturb(t, sharedEngine(t))
	d := opened(t, w.host())
	ref := create(t, d, "interrupted")
	for name, f := range map[string]failure{
		"cut off":             {on: anything, times: 3},
		"failing":             {on: anything, status: 502, body: "bad gateway", times: 3},
		"losing what it said": {on: executing, status: 500, body: `{"message":"broken"}`, times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			defer w.fail(f)()
			if got, code := run(t, d, ref, "echo once >> ran; echo said; exit 3"); got != "said\n" || code != 3 {
				t.Errorf("%q, %d", got, code)
			}
		})
	}
	if got, _ := run(t, d, ref, "cat ran"); got != strings.Repeat("once\n", 3) {
		t.Errorf("they ran so often: %q", got)
	}
}

func TestABoxThatIsRemovedUnderACommandEndsIt(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "removed")
	begun := make(chan struct{})
	go func() {
		<-begun
		_, _ = e.ContainerRemove(context.Background(), ref, client.ContainerRemoveOptions{Force: true})
	}()
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "echo; sleep 1000"}, Stdout: once(begun)})
	if err != nil || result.ExitCode != 137 {
		t.Errorf("%+v, %v", result, err)
	}
}

// once is a writer that closes the channel at the first output.
type once chan struct{}

func (o once) Write(p []byte) (int, error) {
	select {
	case <-o:
	default:
		close(o)
	}
	return len(p), nil
}

func TestAnEngineThatIsStartedAgainUnderACommandEndsIt(t *testing.T) {
	t.Parallel()
	e := dockertest.New(t)
	d := opened(t, e.Host())
	ref := create(t, d, "restarted")
	begun := make(chan struct{})
	restarted := make(chan error, 1)
	go func() {
		<-begun
		e.Stop()
		if live, err := d.Probe(context.Background(), ref); live != sandbox.Unknown || err != nil {
			t.Errorf("while the engine is away the box is %s, %v", live, err)
		}
		if _, err := docker.Open(docker.Config{Host: e.Host()}); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("while the engine is away, a driver is opened with %v", err)
		}
		restarted <- e.Start()
	}()
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "echo kept > kept; sync; echo; sleep 1000"}, Stdout: once(begun)})
	if err != nil || result.ExitCode != 137 {
		t.Errorf("%+v, %v", result, err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, d, ref, "cat kept"); got != "kept\n" {
		t.Errorf("it printed %q", got)
	}
}

// registryOf serves an image to the engine and refuses everything below secret/.
func registryOf(t *testing.T) (host string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/secret/"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`))
		case strings.Contains(r.URL.Path, "/hanging/"):
			<-r.Context().Done()
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	host = strings.TrimPrefix(s.URL, "http://")
	var rootfs bytes.Buffer
	if err := dockertest.WriteRootFS(&rootfs, ""); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(rootfs.Bytes(), types.DockerUncompressedLayer))
	if err == nil {
		image, err = mutate.ConfigFile(image, configOf(t, image))
	}
	if err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(host+"/team/base:1", name.Insecure)
	if err == nil {
		err = images.Write(to, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func configOf(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	return config
}

func TestImages(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	host := registryOf(t)
	d := opened(t, e.Host(), func(c *docker.Config) {
		c.StartLimit = 20 * time.Second
		c.Images = []string{"arbe-test/base", host + "/*", "127.0.0.1:1/*"}
	})
	for image, want := range map[string]fault.Code{
		host + "/team/base:2":   fault.Precondition,
		host + "/nobody/none":   fault.Precondition,
		host + "/secret/base:1": fault.Precondition,
		host + "/hanging/base":  fault.Unavailable,
		"127.0.0.1:1/base":      fault.Unavailable,
		"somebody/else":         fault.Precondition,
		"Not An Image":          fault.Invalid,
		"../../etc":             fault.Invalid,
	} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			_, err := d.Create(t.Context(), sandbox.Spec{ID: "refused", Image: image, Labels: sandbox.Labels{Installation: image}, Limits: small})
			wantCode(t, err, want)
		})
	}
	t.Run("one that the registry has", func(t *testing.T) {
		t.Parallel()
		d := opened(t, e.Host(), func(c *docker.Config) { c.Images = []string{host + "/*"} })
		ref, err := d.Create(t.Context(), sandbox.Spec{ID: "pulled", Image: host + "/team/base:1", Labels: sandbox.Labels{Installation: "here"}, Limits: small})
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		t.Cleanup(func() { _ = d.Destroy(context.Background(), ref) })
		if got, _ := run(t, d, ref, "echo it runs"); got != "it runs\n" {
			t.Errorf("it printed %q", got)
		}
	})
}

// A member cannot make the engine pull from a registry that only the operator's machine or network can reach.
func TestRegistriesThatAreNotPublic(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.51")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/info"):
			_, _ = w.Write([]byte(`{"ID": "an engine", "NCPU": 2}`))
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte(`[]`))
		case strings.HasSuffix(r.URL.Path, "/images/create"):
			asked <- r.URL.Query().Get("fromImage")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"message": "denied"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message": "No such image"}`))
		}
	}))
	defer engine.Close()
	d := opened(t, strings.Replace(engine.URL, "http://", "tcp://", 1), func(c *docker.Config) { c.Image = "127.0.0.1:5000/operators/own" })
	for _, image := range []string{"127.0.0.1:5000/secret", "localhost:5000/secret", "localhost/secret", "169.254.169.254/latest/meta-data", "10.0.0.1/x", "[::1]:5000/x", "no-such-name.invalid/x"} {
		_, err := d.Create(t.Context(), sandbox.Spec{ID: "refused", Image: image, Labels: sandbox.Labels{Installation: "here"}, Limits: small})
		wantCode(t, err, fault.Precondition)
		select {
		case name := <-asked:
			t.Errorf("the engine was asked for %s", name)
		default:
		}
	}
	for _, image := range []string{"", "debian:13"} {
		_, err := d.Create(t.Context(), sandbox.Spec{ID: "asked", Image: image, Labels: sandbox.Labels{Installation: "here"}, Limits: small})
		wantCode(t, err, fault.Precondition)
		if len(asked) != 1 {
			t.Fatalf("the engine was not asked for %q", image)
		}
		<-asked
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  docker.Config
		want fault.Code
	}{
		"no engine":                           {docker.Config{}, fault.Precondition},
		"no address":                          {docker.Config{Host: "an engine"}, fault.Invalid},
		"a relative path":                     {docker.Config{Host: "unix://engine.sock"}, fault.Invalid},
		"another machine without certificate": {docker.Config{Host: "tcp://10.1.2.3:2375"}, fault.Invalid},
		"a name without certificate":          {docker.Config{Host: "tcp://localhost.example:2375"}, fault.Invalid},
		"certificates that are not there":     {docker.Config{Host: "tcp://10.1.2.3:2376", TLS: t.TempDir()}, fault.Invalid},
		"the network of the machine":          {docker.Config{Host: "unix:///nowhere", Network: "host"}, fault.Invalid},
		"the network of a container":          {docker.Config{Host: "unix:///nowhere", Network: "container:x"}, fault.Invalid},
		"an engine that is away":              {docker.Config{Host: "unix:///nowhere"}, fault.Unavailable},
		"an engine that is away, by TCP":      {docker.Config{Host: "tcp://127.0.0.1:1"}, fault.Unavailable},
	} {
		_, err := docker.Open(c.cfg)
		if fault.CodeOf(err) != c.want {
			t.Errorf("%s: %v has the code %q, want %q", name, err, fault.CodeOf(err), c.want)
		}
	}
}
