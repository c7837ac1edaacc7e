package sdewan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"subctl/internal/prefix"
)

// Networks are the devices of a CNF by the names of the networks to which they are attached.
type Networks map[string]string

// Attachment is a device of a CNF, as NetworksAnnotation describes it.
type Attachment struct {
	// Network is the name of the network, and Device the name of the device in the pod.
	Network, Device string
	// Default is true if the pod's default route leads to this network.
	Default bool
	// Address is the device's address, and Gateway the network's gateway. They are invalid if the
	// annotation has none.
	Address netip.Prefix
	Gateway netip.Addr
}

// The bounds of what ParseNetworks accepts: the limit of Kubernetes for all annotations together,
// and of mwan3 for its interfaces.
const (
	maxNetworks = 256 << 10
	// MaxAttachments is the maximum number of networks of a CNF.
	MaxAttachments = 60
)

// ParseNetworks returns the devices in the value of a NetworksAnnotation. "" has none. What is
// wrong is in the error, and the rest is returned.
func ParseNetworks(annotation string) (Networks, error) {
	list, err := ParseAttachments(annotation)
	n := make(Networks, len(list))
	for _, a := range list {
		if _, ok := n[a.Network]; !ok { // the first one counts, as upstream
			n[a.Network] = a.Device
		}
	}
	return n, err
}

// ParseAttachments returns the devices in the value of a NetworksAnnotation, in their order. "" has
// none. What is wrong is in the error, and the rest is returned.
func ParseAttachments(annotation string) ([]Attachment, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	if len(annotation) > maxNetworks {
		return nil, fmt.Errorf("annotation %s has %d bytes: at most %d are possible", NetworksAnnotation,
			len(annotation), maxNetworks)
	}
	var value struct {
		Interface []struct {
			Default   any    `json:"defaultGateway"` // "true", "false", or without quotes
			Interface string `json:"interface"`
			Name      string `json:"name"`
			IPAddress string `json:"ipAddress"`
			Gateway   string `json:"gatewayipAddress"`
		} `json:"interface"`
	}
	if err := json.Unmarshal([]byte(annotation), &value); err != nil {
		return nil, fmt.Errorf(
			`annotation %s must be JSON such as {"type":"ovn4nfv","interface":[{"interface":"net0","name":"NETWORK"}]}: %w`,
			NetworksAnnotation, untyped(err))
	}
	var list []Attachment
	var errs []error
	if most := len(value.Interface); most > MaxAttachments {
		errs = append(
			errs,
			fmt.Errorf("annotation %s lists %d devices: at most %d are possible", NetworksAnnotation, most,
				MaxAttachments),
		)
		value.Interface = value.Interface[:MaxAttachments]
	}
	for i, d := range value.Interface {
		complain := func(format string, args ...any) {
			errs = append(errs,
				fmt.Errorf("annotation %s: interface[%d]: "+format, append([]any{NetworksAnnotation, i}, args...)...))
		}
		a := Attachment{Network: d.Name, Device: d.Interface, Default: d.Default == true || d.Default == "true"}
		switch {
		case d.Name == "" || len(d.Name) > 253:
			complain("name must be the name of a network, not %.260q", d.Name)
			continue
		case !isDevice(d.Interface):
			complain("interface must be the name of a device, of at most 15 characters, not %.40q", d.Interface)
			continue
		case slices.ContainsFunc(list, func(o Attachment) bool { return o.Device == d.Interface }):
			complain("device %s is listed twice", d.Interface)
			continue
		}
		if d.IPAddress != "" {
			if a.Address = parsePrefix(d.IPAddress); !a.Address.IsValid() {
				complain("ipAddress must be an address such as 192.0.2.1/24, not %.60q", d.IPAddress)
			}
		}
		if d.Gateway != "" {
			var err error
			if a.Gateway, err = netip.ParseAddr(d.Gateway); err != nil {
				complain("gatewayipAddress must be an IP address, not %.60q", d.Gateway)
			}
		}
		list = append(list, a)
	}
	return list, errors.Join(errs...)
}

// parsePrefix returns an address with its prefix length, which may be missing. It is invalid if s
// is.
func parsePrefix(s string) netip.Prefix {
	p, err := prefix.Parse(s)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// isDevice reports whether Linux accepts the name for a device.
func isDevice(name string) bool {
	return name != "" && len(name) <= 15 && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' || r == ':' })
}

// devices returns the devices of networks that a field of a rule lists.
func (n Networks) devices(field string, networks []string) ([]string, error) {
	var out []string
	var errs []error
	for i, name := range networks {
		if d, ok := n[name]; ok {
			out = append(out, d)
			continue
		}
		errs = append(errs,
			fmt.Errorf("%s: the CNF is not attached to network %q: %s", fmt.Sprintf(field, i), name, n.known()))
	}
	return out, errors.Join(errs...)
}

// known lists the networks for an error.
func (n Networks) known() string {
	if len(n) == 0 {
		return "its pods have no networks in the annotation " + NetworksAnnotation
	}
	return "the annotation " + NetworksAnnotation + " of its pods has " + strings.Join(slices.Sorted(maps.Keys(n)),
		", ")
}
