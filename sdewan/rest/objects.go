package rest

import "net/netip"

// The objects of the API, as upstream's client sends them: every field is a string, a list of
// strings or a list of objects, and an unset field is "" or null. A CNF returns the values exactly
// as it received them, unset lists as null or not at all: upstream's controller compares what it
// reads with what it wants, field by field.

// Policy (mwan3/v1/policies) spreads connections over uplinks. Only the members with the lowest
// metric whose interface is online are used, each for a share of the connections according to its
// weight. Members that exceed a limit come last.
type Policy struct {
	Name       string   `json:"name"`
	Members    []Member `json:"members"`
	LastResort string   `json:"last_resort,omitempty"` // without a member: unreachable, blackhole, default
}

// Member is an uplink of a Policy.
type Member struct {
	Interface string `json:"interface"`
	Metric    string `json:"metric"` // integer from 1; the lowest is used
	Weight    string `json:"weight"` // integer from 1

	// The limits of what is measured, which upstream does not have: "" is none.
	MaxLoss    string `json:"max_loss,omitempty"`    // of pings, percent
	MaxLatency string `json:"max_latency,omitempty"` // milliseconds
	MaxJitter  string `json:"max_jitter,omitempty"`  // milliseconds
}

// Rule (mwan3/v1/rules) assigns a policy to connections. The first rule that matches decides; rules
// are in the order of their creation.
type Rule struct {
	Name     string `json:"name"`
	Policy   string `json:"policy"`
	SrcIP    string `json:"src_ip"`
	SrcPort  string `json:"src_port"`
	DestIP   string `json:"dest_ip"`
	DestPort string `json:"dest_port"`
	Proto    string `json:"proto"`   // tcp, udp, icmp, all
	Family   string `json:"family"`  // ipv4, ipv6, all
	Sticky   string `json:"sticky"`  // 0, 1: whether the connections of a source stay with one uplink
	Timeout  string `json:"timeout"` // of Sticky, seconds
}

// Zone (firewall/v1/zones) is a set of networks, and what is allowed from it, to it and within it.
type Zone struct {
	Name             string   `json:"name"`
	Network          []string `json:"network"`
	Masq             string   `json:"masq"`
	MasqSrc          []string `json:"masq_src"`
	MasqDest         []string `json:"masq_dest"`
	MasqAllowInvalid string   `json:"masq_allow_invalid"`
	MTUFix           string   `json:"mtu_fix"`
	Input            string   `json:"input"`
	Forward          string   `json:"forward"`
	Output           string   `json:"output"`
	Family           string   `json:"family"`
	Subnet           []string `json:"subnet"`
	ExtraSrc         string   `json:"extra_src"`
	ExtraDest        string   `json:"etra_dest"` // sic, upstream
}

// Forwarding (firewall/v1/forwardings) allows connections from one zone to another one.
type Forwarding struct {
	Name   string `json:"name"`
	Src    string `json:"src"`
	Dest   string `json:"dest"`
	Family string `json:"family"`
}

// FirewallRule (firewall/v1/rules, and networkfirewall/v1/rules where Src and Dest are interfaces).
type FirewallRule struct {
	Name     string   `json:"name"`
	Src      string   `json:"src"`
	SrcIP    string   `json:"src_ip"`
	SrcMAC   string   `json:"src_mac"`
	SrcPort  string   `json:"src_port"`
	Proto    string   `json:"proto"`
	ICMPType []string `json:"icmp_type"`
	Dest     string   `json:"dest"`
	DestIP   string   `json:"dest_ip"`
	DestPort string   `json:"dest_port"`
	Mark     string   `json:"mark"`
	Target   string   `json:"target"`
	SetMark  string   `json:"set_mark"`
	SetXMark string   `json:"set_xmark"`
	Family   string   `json:"family"`
	Extra    string   `json:"extra"`
}

// Redirect (firewall/v1/redirects) translates destinations (DNAT) or sources (SNAT).
type Redirect struct {
	Name     string `json:"name"`
	Src      string `json:"src"`
	SrcIP    string `json:"src_ip"`
	SrcDIP   string `json:"src_dip"`
	SrcMAC   string `json:"src_mac"`
	SrcPort  string `json:"src_port"`
	SrcDPort string `json:"src_dport"`
	Proto    string `json:"proto"`
	Dest     string `json:"dest"`
	DestIP   string `json:"dest_ip"`
	DestPort string `json:"dest_port"`
	Mark     string `json:"mark"`
	Target   string `json:"target"`
	Family   string `json:"family"`
}

// Proposal (ipsec/v1/proposals) names algorithms, in strongSwan's words.
type Proposal struct {
	Name       string `json:"name"`
	Encryption string `json:"encryption_algorithm"`
	Hash       string `json:"hash_algorithm"`
	DHGroup    string `json:"dh_group"`
}

// Remote (ipsec/v1/remotes) is another end of IPsec tunnels. It contains secrets, so it has no
// String method, and must never be logged.
type Remote struct {
	Name          string       `json:"name"`
	Type          string       `json:"type"`
	Gateway       string       `json:"gateway"`
	PreSharedKey  string       `json:"pre_shared_key"`
	Auth          string       `json:"authentication_method"`
	LocalID       string       `json:"local_identifier"`
	RemoteID      string       `json:"remote_identifier"`
	Proposals     []string     `json:"crypto_proposal"`
	ForceProposal string       `json:"force_crypto_proposal"`
	LocalCert     string       `json:"local_public_cert"`
	LocalKey      string       `json:"local_private_cert"`
	CA            string       `json:"shared_ca"`
	Connections   []Connection `json:"connections"`
}

// Waits reports whether the remote may have any address, so that the CNF waits for it and begins
// nothing: no address, any, %any, 0.0.0.0 or ::.
func (o *Remote) Waits() bool {
	ip, err := netip.ParseAddr(o.Gateway)
	return o.Gateway == "" || o.Gateway == "any" || o.Gateway == "%any" || err == nil && ip.IsUnspecified()
}

// Connection is a tunnel of a Remote.
type Connection struct {
	Name           string   `json:"name"`
	Type           string   `json:"conn_type"`
	Mode           string   `json:"mode"`
	LocalSubnet    string   `json:"local_subnet"`
	LocalNAT       string   `json:"local_nat"`
	LocalSourceIP  string   `json:"local_sourceip"`
	LocalUpdown    string   `json:"local_updown"`
	LocalFirewall  string   `json:"local_firewall"`
	RemoteSubnet   string   `json:"remote_subnet"`
	RemoteSourceIP string   `json:"remote_sourceip"`
	RemoteUpdown   string   `json:"remote_updown"`
	RemoteFirewall string   `json:"remote_firewall"`
	Proposals      []string `json:"crypto_proposal"`
	Mark           string   `json:"mark"`
	IfID           string   `json:"if_id"`
}

// NAT (nat/v1/nats) translates addresses on an interface, independently of zones.
type NAT struct {
	Name     string `json:"name"`
	Src      string `json:"src"`
	SrcIP    string `json:"src_ip"`
	SrcDIP   string `json:"src_dip"`
	SrcPort  string `json:"src_port"`
	SrcDPort string `json:"src_dport"`
	Proto    string `json:"proto"`
	Dest     string `json:"dest"`
	DestIP   string `json:"dest_ip"`
	DestPort string `json:"dest_port"`
	Target   string `json:"target"` // DNAT, SNAT, MASQUERADE
	Index    string `json:"index"`  // "" or "0" is the last, n the nth
}

// Route (route/v1/routes).
type Route struct {
	Name  string `json:"name"`
	Dst   string `json:"dst"`
	Src   string `json:"src"`
	GW    string `json:"gw"`
	Dev   string `json:"dev"`
	Table string `json:"table"` // default, cnf
}

// RouteRule (rule/v1/rules).
type RouteRule struct {
	Name   string `json:"name"`
	Src    string `json:"src"`
	Dst    string `json:"dst"`
	Not    bool   `json:"flag"`
	Prio   string `json:"prio"`
	FwMark string `json:"fwmark"`
	Table  string `json:"table"`
}

// Application (application/v1/applications) sends the packets of some addresses to the table of
// routes "cnf".
type Application struct {
	Name   string `json:"name"`
	IPList string `json:"iplist"` // separated by commas
}

// Service (service/v1/services) makes a port of the CNF lead to a port of a Service.
type Service struct {
	Name     string `json:"name"`
	FullName string `json:"fullname"`
	Port     string `json:"port"`
	DPort    string `json:"dport"`
}
