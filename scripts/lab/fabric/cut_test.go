package fabric

import (
	"testing"

	"subctl/lab/plan"
)

func TestParseCuts(t *testing.T) {
	// As nft 1.0.6 prints it.
	const listing = `{"nftables": [{"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
		{"set": {"family": "netdev", "name": "cut", "table": "subctl_lab", "type": ["ifname", "ipv4_addr"], "handle": 2,
		"elem": [{"concat": ["c2", "10.100.1.1"]}, {"concat": ["c1", "10.100.2.1"]}]}}]}`
	got, err := parseCuts([]byte(listing))
	if err != nil {
		t.Fatal(err)
	}
	want := []plan.Cut{{Link: "c1", Addr: "10.100.2.1"}, {Link: "c2", Addr: "10.100.1.1"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, err := parseCuts([]byte(`{"nftables": [{"set": {"name": "cut"}}]}`)); err != nil || len(got) != 0 {
		t.Errorf("an empty set gave %v, %v", got, err)
	}
}
