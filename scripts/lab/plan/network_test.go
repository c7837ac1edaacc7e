package plan

import "testing"

func TestParseHost(t *testing.T) {
	h, err := ParseHost("isp1", []string{"wan1=198.51.100.1/24", "core=192.0.2.1/24"}, []string{"default=192.0.2.80"})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Ports) != 2 || len(h.Routes) != 1 || len(h.Port("wan1")) > 15 || h.Port("wan1") == h.Port("core") {
		t.Errorf("%+v %s %s", h, h.Port("wan1"), h.Port("core"))
	}
	for _, bad := range [][]string{{"ISP", "a=1.2.3.4/24"}, {"isp", "a"}, {"isp", "a=1.2.3.4"}} {
		if _, err := ParseHost(bad[0], bad[1:], nil); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := ParseHost("isp", nil, []string{"10.0.0.0/8"}); err == nil {
		t.Error("a route without gateway is accepted")
	}
	for name, want := range map[Network]bool{
		"lan":         true,
		"wan1":        true,
		"1":           false,
		"longernames": false,
		"a/b":         false,
		"":            false,
	} {
		if got := name.Validate() == nil; got != want {
			t.Errorf("network %q is accepted: %t", name, got)
		}
	}
}
