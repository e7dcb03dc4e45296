package web_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// signIn returns an HTTP client that is logged in.
func (a *arbeInstallation) signIn(b *testing.B) *http.Client {
	b.Helper()
	link, err := a.client().Agents.CreateLoginLink(b.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		b.Fatal(err)
	}
	address, err := url.Parse(link.Path)
	if err != nil {
		b.Fatal(err)
	}
	jar, _ := cookiejar.New(nil)
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	res, err := c.PostForm("http://"+a.addr+"/login", url.Values{"token": {address.Query().Get("token")}})
	if err != nil {
		b.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b.Fatalf("the login is answered with %d", res.StatusCode)
	}
	return c
}

func (a *arbeInstallation) page(b *testing.B, c *http.Client, path string) string {
	b.Helper()
	res, err := c.Get("http://" + a.addr + path) //nolint:noctx // it ends with the benchmark
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatalf("%s: %d %v", path, res.StatusCode, err)
	}
	return string(text)
}

// house creates a house with this many threads.
func (a *arbeInstallation) house(b *testing.B, threads int) (id string, made []string) {
	b.Helper()
	c := a.client()
	house, err := c.Houses.CreateHouse(b.Context(), &arbev1.CreateHouseRequest{Name: fmt.Sprint("House of ", threads)})
	if err != nil {
		b.Fatal(err)
	}
	made = make([]string, threads-1) // it already has one
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(32)
	for i := range made {
		g.Go(func() error {
			res, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house.House.Id, Name: fmt.Sprint("thread number ", i)})
			made[i] = res.GetThread().GetId()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return house.House.Id, made
}

// processor returns the processor time that the server's process has used.
func (a *arbeInstallation) processor(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.server.Process.Pid))
	if err != nil {
		b.Skip("this needs /proc")
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// BenchmarkThousandTabs opens a house of 300 threads in 1,000 browsers: half of them show the list, half a thread. It
// measures how much of a core the server takes while nothing happens, and how long after a rename all lists show the new
// name.
func BenchmarkThousandTabs(b *testing.B) {
	const tabs, changes = 1000, 100
	a := installation(b)
	a.start()
	house, threads := a.house(b, 300)
	c, session := a.client(), a.signIn(b)
	var mu sync.Mutex
	var seen []time.Duration
	sent := map[string]time.Time{}
	time.Sleep(2 * time.Second) // let the work of creating threads finish
	before, start := a.processor(b), time.Now()
	time.Sleep(10 * time.Second)
	alone := 100 * float64(a.processor(b)-before) / float64(time.Since(start))
	live := make(chan struct{}, tabs)
	done := make(chan struct{}, tabs*changes)
	for i := range tabs {
		topics := "t=house/" + house + "/&t=list/" + house + "/"
		if i%2 == 1 {
			topics = "t=house/" + house + "/&t=thread/" + threads[i%len(threads)] + "/0"
		}
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+a.addr+"/live?"+topics, nil)
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			res, err := session.Do(r)
			if err != nil {
				return
			}
			defer func() { _ = res.Body.Close() }()
			buffer, first := make([]byte, 256<<10), true
			for {
				n, err := res.Body.Read(buffer)
				if err != nil {
					return
				}
				at, text := time.Now(), buffer[:n]
				if first && bytes.Contains(text, []byte("data: ")) {
					first = false
					live <- struct{}{}
				}
				if _, marker, ok := bytes.Cut(text, []byte("change number ")); ok && i%2 == 0 {
					name, _, _ := bytes.Cut(marker, []byte("."))
					mu.Lock()
					seen = append(seen, at.Sub(sent[string(name)]))
					mu.Unlock()
					done <- struct{}{}
				}
			}
		}()
	}
	wait := func(what string, from chan struct{}, n int) {
		b.Helper()
		late := time.After(time.Minute)
		for range n {
			select {
			case <-from:
			case <-late:
				b.Fatal("waited too long for " + what)
			}
		}
	}
	wait("the tabs", live, tabs)
	for b.Loop() {
		time.Sleep(2 * time.Second) // let the work of opening the tabs finish
		before, start := a.processor(b), time.Now()
		time.Sleep(20 * time.Second)
		idle := 100 * float64(a.processor(b)-before) / float64(time.Since(start))
		b.ReportMetric(idle-alone, "idle-%-of-a-core")
		b.ReportMetric(alone, "idle-%-without-tabs")
		before = a.processor(b)
		for i := range changes {
			name := fmt.Sprint(i)
			mu.Lock()
			sent[name] = time.Now()
			mu.Unlock()
			title := "change number " + name + "."
			if _, err := c.Threads.UpdateThread(b.Context(), &arbev1.UpdateThreadRequest{Id: threads[len(threads)-1-i%50], Name: &title}); err != nil {
				b.Fatal(err)
			}
			wait("a change", done, tabs/2)
			time.Sleep(20 * time.Millisecond)
		}
		b.ReportMetric(float64((a.processor(b)-before).Microseconds())/1000/changes, "processor-ms/change")
		slices.Sort(seen)
		b.ReportMetric(float64(seen[len(seen)/2].Microseconds())/1000, "seen-p50-ms")
		b.ReportMetric(float64(seen[len(seen)*99/100].Microseconds())/1000, "seen-p99-ms")
	}
	b.ReportMetric(0, "ns/op") // meaningless over all sizes
}

// BenchmarkHouseOpens measures how long the page of a house with 10, 100 and 10,000 threads takes, alternating between the
// sizes. A page shows 100 threads.
func BenchmarkHouseOpens(b *testing.B) {
	a := installation(b)
	a.start()
	sizes := []int{10, 100, 10_000}
	var houses []string
	for _, n := range sizes {
		id, _ := a.house(b, n)
		houses = append(houses, id)
	}
	medians := a.open(b, sizes, func(i int) string { return "/houses/" + houses[i] })
	b.ReportMetric(medians[2]/medians[0], "10000/10")
	b.ReportMetric(medians[2]/medians[1], "10000/100")
}

// BenchmarkThreadOpens measures how long the page of a thread with 50 and 10,000 entries takes, alternating between the sizes.
func BenchmarkThreadOpens(b *testing.B) {
	a := installation(b)
	a.start()
	sizes := []int{50, 10_000}
	var threads []string
	for _, n := range sizes {
		threads = append(threads, a.thread(a.client(), n))
	}
	medians := a.open(b, sizes, func(i int) string { return "/threads/" + threads[i] })
	b.ReportMetric(medians[1]/medians[0], "10000/50")
}

// open opens the page of each size 100 times, alternating between the sizes. It reports and returns the median for each size
// in milliseconds.
func (a *arbeInstallation) open(b *testing.B, sizes []int, page func(i int) string) (medians []float64) {
	b.Helper()
	session := a.signIn(b)
	times := make([][]time.Duration, len(sizes))
	for b.Loop() {
		for range 100 {
			for i := range sizes {
				start := time.Now()
				a.page(b, session, page(i))
				times[i] = append(times[i], time.Since(start))
			}
		}
	}
	for i, n := range sizes {
		slices.Sort(times[i])
		medians = append(medians, float64(times[i][len(times[i])/2].Microseconds())/1000)
		b.ReportMetric(medians[i], fmt.Sprintf("ms/%d", n))
	}
	b.ReportMetric(0, "ns/op") // meaningless over all sizes
	return medians
}
