package node

import (
	"encoding/json"
	"testing"
)

func TestBridge(t *testing.T) {
	conflist, err := bridge(
		"FLANNEL_NETWORK=10.111.0.0/16\nFLANNEL_SUBNET=10.111.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Plugins []struct {
			Type   string
			MTU    int
			IPMasq bool
			IPAM   struct {
				Ranges [][]struct{ Subnet string }
				Routes []struct{ Dst string }
			}
		}
	}
	if err := json.Unmarshal([]byte(conflist), &got); err != nil {
		t.Fatal(err, conflist)
	}
	b := got.Plugins[0]
	if b.Type != "bridge" || b.MTU != 1450 || b.IPMasq || b.IPAM.Ranges[0][0].Subnet != "10.111.1.0/24" ||
		b.IPAM.Routes[0].Dst != "10.111.0.0/16" {
		t.Error(conflist)
	}
	if _, err := bridge("FLANNEL_SUBNET=\n"); err == nil {
		t.Error("no subnet is accepted")
	}
}
