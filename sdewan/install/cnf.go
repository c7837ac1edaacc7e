package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/dataplane"
	"subctl/sdewan"
)

// The plugins that attach pods to networks.
const (
	Multus  = "multus"  // a NetworkAttachmentDefinition with the name of each network
	OVN4NFV = "ovn4nfv" // one NetworkAttachmentDefinition for all, as the proposal has it
)

// ovn4nfvAttachment is the NetworkAttachmentDefinition of ovn4nfv, which reads the names of
// networks from NetworksAnnotation.
const ovn4nfvAttachment = "ovn-networkobj"

// Network is a network of a CNF.
type Network struct {
	Name    string
	Address netip.Prefix // of the pod; the zero Prefix lets the network plugin choose
}

// CNF describes a CNF that runs subctl agent cnf.
type CNF struct {
	Name, Namespace string
	Purpose         string // the value of the label sdewanPurpose
	Image           string
	Replicas        int32
	Networks        []Network // net0, net1 and so on
	Uplinks         map[string]sdewan.Uplink
	Plugin          string            // Multus or OVN4NFV
	NodeSelector    map[string]string // nodes that are connected to the networks
	PriorityClass   string            // of the pods; "" for that of the cluster
	AccountSecret   string            // the Secret with the password of root
	CertSecret      string            // the Secret with ca.crt, tls.crt and tls.key
}

// Validate returns all mistakes.
func (c CNF) Validate() error {
	errs := []error{label("name", c.Name), label("namespace", c.Namespace)}
	if errs[0] == nil { // names of Secrets may begin with it
		errs = append(errs, label("account Secret", c.AccountSecret), label("certificate Secret", c.CertSecret))
	}
	if c.Purpose == "" {
		errs = append(
			errs,
			fmt.Errorf("--purpose is missing: the value of the label %s, by which rules choose the CNF",
				sdewan.PurposeLabel),
		)
	} else if len(validation.IsValidLabelValue(c.Purpose)) > 0 {
		errs = append(
			errs,
			fmt.Errorf(
				"purpose %q is not a valid value of the label %s: use up to 63 letters, digits, '-', '_' and '.', of which the first and the last are a letter or digit",
				c.Purpose, sdewan.PurposeLabel),
		)
	}
	if c.Image == "" {
		errs = append(errs, errors.New("the image is missing: specify it with --image"))
	}
	if err := checkImage(c.Image); err != nil {
		errs = append(errs, err)
	}
	if c.Replicas < 0 {
		errs = append(errs, fmt.Errorf("%d replicas must not be negative", c.Replicas))
	}
	if c.PriorityClass != "" {
		if problems := validation.IsDNS1123Subdomain(c.PriorityClass); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("priority class %q: %s", c.PriorityClass, problems[0]))
		}
	}
	if c.Plugin != Multus && c.Plugin != OVN4NFV {
		errs = append(errs, fmt.Errorf("plugin %q is unknown: use %s or %s", c.Plugin, Multus, OVN4NFV))
	}
	if len(c.Networks) == 0 {
		errs = append(
			errs,
			errors.New(
				"a CNF needs at least one network: list them with --networks, such as lan=192.168.1.1/24,wan1=198.51.100.10/24"),
		)
	}
	if most := sdewan.MaxAttachments; len(c.Networks) > most {
		errs = append(errs,
			fmt.Errorf("--networks: %d networks are too many: a CNF has at most %d", len(c.Networks), most))
	}
	seen := map[string]bool{}
	for i, n := range c.Networks {
		if _, uplink := c.Uplinks[n.Name]; uplink && i >= dataplane.MaxUplinks && i < sdewan.MaxAttachments {
			errs = append(
				errs,
				fmt.Errorf("uplink %q: only the first %d networks can be uplinks: list it earlier in --networks",
					n.Name, dataplane.MaxUplinks),
			)
		}
		if err := label("network", n.Name); err != nil {
			errs = append(errs, err)
		}
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("network %q is listed twice", n.Name))
		}
		seen[n.Name] = true
		if n.Address.IsValid() && c.Replicas > 1 {
			errs = append(
				errs,
				fmt.Errorf(
					"network %q: %d pods cannot all have the address %s: omit it, and let the network plugin choose",
					n.Name, c.Replicas, n.Address),
			)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Uplinks)) {
		if !seen[name] {
			errs = append(errs, fmt.Errorf("uplink %q is none of the networks: add it to --networks", name))
		}
	}
	errs = append(errs, c.checkAddresses()...)
	for _, k := range slices.Sorted(maps.Keys(c.NodeSelector)) {
		v := c.NodeSelector[k]
		if bad := slices.Concat(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)); len(bad) > 0 {
			errs = append(errs,
				fmt.Errorf("node selector %q=%q is not a label of nodes, such as kubernetes.io/hostname=node-1", k, v))
		}
	}
	return errors.Join(errs...)
}

// label checks a name that must be a label of DNS, as names in labels and in host names must.
func label(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty: use lower case letters, digits and '-'", what)
	case len(name) > validation.DNS1123LabelMaxLength:
		return fmt.Errorf("%s %.70q has %d characters: use at most %d", what, name, len(name),
			validation.DNS1123LabelMaxLength)
	case len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Errorf(
			"%s %q must consist of lower case letters, digits and '-', and begin and end with a letter or digit", what,
			name)
	}
	return nil
}

// device returns the name of the device for the network with an index.
func device(i int) string { return fmt.Sprintf("net%d", i) }

// nfnNetworks is the annotation sdewan.NetworksAnnotation; ovn4nfv's booleans are text.
type nfnNetworks struct {
	Type      string         `json:"type"`
	Interface []nfnInterface `json:"interface"`
}

type nfnInterface struct {
	DefaultGateway string `json:"defaultGateway"`
	Interface      string `json:"interface"`
	Name           string `json:"name"`
	IPAddress      string `json:"ipAddress,omitempty"`
	GatewayIP      string `json:"gatewayipAddress,omitempty"`
}

// attachment is a network in the annotation sdewan.MultusAnnotation.
type attachment struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
}

// annotations returns the annotations of the pods.
func (c CNF) annotations() (map[string]string, error) {
	networks := nfnNetworks{Type: OVN4NFV}
	attachments := []attachment{}
	for i, n := range c.Networks {
		nfn := nfnInterface{DefaultGateway: "false", Interface: device(i), Name: n.Name}
		a := attachment{Name: n.Name, Interface: device(i)}
		if n.Address.IsValid() {
			nfn.IPAddress = n.Address.String()
			a.IPs = []string{n.Address.String()}
		}
		if gw := c.Uplinks[n.Name].Gateway; gw.IsValid() {
			nfn.GatewayIP = gw.String()
		}
		networks.Interface = append(networks.Interface, nfn)
		attachments = append(attachments, a)
	}
	if c.Plugin == OVN4NFV {
		attachments = []attachment{{Name: ovn4nfvAttachment}}
	}
	out := map[string]string{}
	values := map[string]any{sdewan.NetworksAnnotation: networks, sdewan.MultusAnnotation: attachments}
	if len(c.Uplinks) > 0 {
		values[sdewan.UplinksAnnotation] = c.Uplinks
	}
	for key, value := range values {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return nil, err
		}
		out[key] = string(text)
	}
	return out, nil
}

// Account returns the Secret with the password of root.
func (c CNF) Account(password string) client.Object {
	return c.secret(c.AccountSecret, corev1.SecretTypeOpaque, map[string][]byte{"password": []byte(password)})
}

// Certificate returns the Secret with the certificate of the CNF, its key, and the certificate that
// verifies it, in PEM.
func (c CNF) Certificate(ca, cert, key []byte) client.Object {
	return c.secret(c.CertSecret, corev1.SecretTypeTLS,
		map[string][]byte{"ca.crt": ca, corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key})
}

func (c CNF) secret(name string, kind corev1.SecretType, data map[string][]byte) client.Object {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: c.Namespace,
			Labels:    map[string]string{sdewan.PurposeLabel: c.Purpose},
		},
		Type: kind,
		Data: data,
	}
}

// DNSName returns the name for which the certificates of CNFs in a namespace are: that of each pod
// is its address with '-' in place of '.', and this.
func DNSName(namespace string) string { return "*." + namespace + ".pod." + sdewan.ClusterDomain }
