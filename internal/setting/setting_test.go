package setting_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/setting"
)

type config struct {
	Text         string
	Count        int
	Number, USD  float64
	Time, Pause  time.Duration
	Size, Micros int64
	None         int64
	Names, Paths []string
}

func settings() []setting.Setting[config] {
	return []setting.Setting[config]{
		setting.Text("text", "a text", "", func(c *config) *string { return &c.Text }),
		setting.Count("count", "7", "", func(c *config) *int { return &c.Count }),
		setting.Number("number", "1.5", "", func(c *config) *float64 { return &c.Number }),
		setting.Dollars("dollars", "0.5", "", func(c *config) *float64 { return &c.USD }),
		setting.Duration("time", "90s", "", func(c *config) *time.Duration { return &c.Time }),
		setting.Pause("pause", "0s", "", func(c *config) *time.Duration { return &c.Pause }),
		setting.Size("size", "2GiB", "", func(c *config) *int64 { return &c.Size }),
		setting.Micros("micros", "20", "", func(c *config) *int64 { return &c.Micros }),
		setting.MicrosOrNone("none", "0", "", func(c *config) *int64 { return &c.None }),
		setting.Names("names", "a, b,c", "", func(c *config) *[]string { return &c.Names }),
		setting.Paths("paths", "/a:/b c", "", func(c *config) *[]string { return &c.Paths }),
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := config{"a text", 7, 1.5, 0.5, 90 * time.Second, 0, 2 << 30, 20e6, 0, []string{"a", "b", "c"}, []string{"/a", "/b c"}}
	if got := setting.Defaults(settings()); !reflect.DeepEqual(got, want) {
		t.Errorf("they are %+v", got)
	}
}

func TestADefaultThatIsNoValuePanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("it does not")
		}
	}()
	setting.Defaults([]setting.Setting[config]{setting.Count("count", "many", "", func(c *config) *int { return &c.Count })})
}

func TestBadValuesAreRefusedByName(t *testing.T) {
	t.Parallel()
	bad := map[string][]string{
		"count": {"many", "0", "-1", "1.5", "2147483648"}, "number": {"0", "-1", "x", "Inf", "NaN"}, "dollars": {"0", "NaN", "Inf", "1e10", "0.0000001"},
		"time": {"4", "0s", "-1s", "soon"}, "pause": {"-1s", "now"}, "size": {"large", "0", "-1", "10 GB", "9999999999999TiB"},
		"micros": {"0", "-1", "NaN"}, "none": {"-1", "NaN", "free"},
	}
	for _, s := range settings() {
		for _, text := range bad[s.Name] {
			c := setting.Defaults(settings())
			f := fault.From(s.Set(&c, text))
			if f == nil || f.Code != fault.Invalid || f.Next == "" || !strings.HasPrefix(f.Message, s.Name+": ") {
				t.Errorf("%s = %q: %v", s.Name, text, f)
			}
			if !reflect.DeepEqual(c, setting.Defaults(settings())) {
				t.Errorf("%s = %q changed it to %+v", s.Name, text, c)
			}
		}
	}
}

func TestAnEmptyTextSetsNothing(t *testing.T) {
	t.Parallel()
	c := setting.Defaults(settings())
	for _, s := range settings() {
		if err := s.Set(&c, ""); err != nil {
			t.Error(err)
		}
	}
	if !reflect.DeepEqual(c, setting.Defaults(settings())) {
		t.Errorf("it is %+v", c)
	}
}

func TestSettingsOfAPart(t *testing.T) {
	t.Parallel()
	type whole struct{ Part config }
	list := setting.Within(func(w *whole) *config { return &w.Part }, settings()...)
	if got := setting.Defaults(list).Part; !reflect.DeepEqual(got, setting.Defaults(settings())) {
		t.Errorf("they are %+v", got)
	}
	if list[1].Env != "ARBE_COUNT" || list[1].At("COUNT").Env != "COUNT" || list[1].Secret || !list[1].Masked().Secret {
		t.Errorf("it is %+v", list[1])
	}
}
