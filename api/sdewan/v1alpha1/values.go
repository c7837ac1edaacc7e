package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// ObjectName is the name of another object with the same label sdewanPurpose, in the same
// namespace.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')`,messageExpression="'must be the name of an object, of lower case letters, digits, - and .: write ' + self.lowerAscii().replace('_', '-')"
type ObjectName string

// ZoneName is the name of a FirewallZone, or "*" for any zone.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self == "" || self == '*' || self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')`,messageExpression="'must be * or the name of a FirewallZone, of lower case letters, digits, - and .: write ' + self.lowerAscii().replace('_', '-')"
type ZoneName string

// NetworkName is a name in the annotation k8s.plugin.opnfv.org/nfn-network of the CNF's pods.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$')`,message="must be the name of a network in the annotation k8s.plugin.opnfv.org/nfn-network of the CNF, of letters, digits, '-', '_', '.' and '/'"
type NetworkName string

// Address is an IPv4 address, or a network.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self == "" || (isIP(self) ? ip(self).family() == 4 : isCIDR(self) && cidr(self).ip().family() == 4)`,message="must be an IPv4 address such as 192.0.2.1, or a network such as 192.0.2.0/24"
type Address string

// IP is a single IPv4 address.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self == "" || isIP(self) && ip(self).family() == 4`,message="must be an IPv4 address such as 192.0.2.1"
type IP string

// MaybeNot is an IPv4 address or a network; "!" before it means all other addresses.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`[self.startsWith("!") ? self.substring(1) : self].all(a, isIP(a) ? ip(a).family() == 4 : isCIDR(a) && cidr(a).ip().family() == 4)`,message="must be an IPv4 address such as 192.0.2.1, or a network such as 192.0.2.0/24, after \"!\" for all others"
type MaybeNot string

// Destination is an IPv4 address or a network, or "default" for all.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self in ["", "default"] || (isIP(self) ? ip(self).family() == 4 : isCIDR(self) && cidr(self).ip().family() == 4)`,message="must be default, an IPv4 address such as 192.0.2.1, or a network such as 192.0.2.0/24"
type Destination string

// Device is the name of a device or network of the CNF, "#default" for the device of its default
// route, or "#" and the address of a device.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self in ["", "#default", "#source"] || self.startsWith("#") && isIP(self.substring(1)) || self.matches('^[A-Za-z0-9]([-A-Za-z0-9_./@]*[A-Za-z0-9])?$')`,message="must be the name of a device or network of the CNF, #default, or # and an address such as #192.0.2.1"
type Device string

// MAC is the address of a device.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$')`,message="must be a MAC address such as 02:00:00:00:00:01"
type MAC string

// Policy is what happens with connections.
//
// +kubebuilder:validation:Enum="";ACCEPT;REJECT;DROP
type Policy string

// Proto is the protocol of packets. The default is TCP and UDP.
//
// +kubebuilder:validation:Enum="";tcp;udp;tcpudp;udplite;icmp;esp;ah;sctp;all
type Proto string

// Family selects IPv4, IPv6 or both.
//
// +kubebuilder:validation:Enum="";ipv4;ipv6;any
type Family string

// Port is a number of a port, from 1 to 65535.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 65535 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535)`,message="must be a port, from 1 to 65535"
type Port string

// Ports are ports, from 1 to 65535: one, a range, or a list of up to 15 of them. OpenWrt accepts
// one only.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=180
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 65535 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?(,[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?){0,14}$') && self.split(",").all(r, r.split("-").all(n, int(n) <= 65535) && int(r.split("-")[0]) <= int(r.split("-")[r.split("-").size()-1])))`,message="must be a port from 1 to 65535, a range such as 1000-2000, or a list such as 80,443"
type Ports string

// Switch is 1 (on) or 0 (off).
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self == 0 || self == 1 : type(self) == string && self in ["", '0', '1']`,message="must be 0 or 1"
type Switch string

// Metric orders uplinks: those with the lowest metric are used.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 256 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,2}$') && int(self) <= 256)`,message="must be a metric, from 1 to 256"
type Metric string

// Weight is the share of an uplink.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 1000 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,3}$') && int(self) <= 1000)`,message="must be a weight, from 1 to 1000"
type Weight string

// Percent is a share of packets.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 100 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,2}$') && int(self) <= 100)`,message="must be a share in percent, from 1 to 100"
type Percent string

// Milliseconds is a time, of at most a minute.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 60000 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 60000)`,message="must be a time in milliseconds, from 1 to 60000"
type Milliseconds string

// Seconds is a time, of at most a day.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 86400 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 86400)`,message="must be seconds, from 1 to 86400"
type Seconds string

// Priority is the place of a rule among others.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 65535 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535)`,message="must be a priority, from 1 to 65535"
type Priority string

// RoutePriority is the place of a rule for routes (ip-rule(8)).
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 32765 : type(self) == string && (self == "" || self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 32765)`,message="must be a priority, from 1 to 32765"
type RoutePriority string

// Index is a place in a list, from 1; 0 is the last.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 10000 : type(self) == string && (self == "" || self.matches('^(0|[1-9][0-9]{0,4})$') && int(self) <= 10000)`,message="must be a place, from 1 to 10000, or 0 for the last"
type Index string

// Table is a table of routes.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 2147483647 : type(self) == string && (self in ["", "main", "local", "default", "cnf"] || self.matches('^[1-9][0-9]{0,8}$'))`,message="must be main, local, default, cnf or the number of a table"
type Table string

// Mark is a mark of packets, decimal or hexadecimal, with a mask after "/" if not all bits count.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 4294967295 : type(self) == string && (self == "" || self.matches('^(0x[0-9A-Fa-f]{1,8}|0|[1-9][0-9]{0,8})(/(0x[0-9A-Fa-f]{1,8}|0|[1-9][0-9]{0,8}))?$'))`,message="must be a mark such as 16, 0x10 or 0x10/0xff, of at most 32 bits"
type Mark string

// MarkMatch is a Mark; "!" before it means all other marks.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 4294967295 : type(self) == string && (self == "" || self.matches('^!(0x[0-9A-Fa-f]{1,8}|0|[1-9][0-9]{0,8})(/(0x[0-9A-Fa-f]{1,8}|0|[1-9][0-9]{0,8}))?$') || self.matches('^(0x[0-9A-Fa-f]{1,8}|0|[1-9][0-9]{0,8})(/(0x[0-9A-Fa-f]{1,8}|0|[1-9][0-9]{0,8}))?$'))`,message="must be a mark such as 16, 0x10 or 0x10/0xff, of at most 32 bits, after \"!\" for all others"
type MarkMatch string

// intOrString returns the text of a JSON number or string; null is "".
func intOrString(data []byte) (string, error) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case float64:
		return string(data), nil
	}
	return "", fmt.Errorf("must be a number or a string, not %.20s", data)
}

// UnmarshalJSON reads a number or a string. MarshalJSON is not needed: a string is as good as a
// number everywhere.
func (p *Port) UnmarshalJSON(data []byte) (err error) { return unmarshal(p, data) }

// UnmarshalJSON reads a number or a string.
func (p *Ports) UnmarshalJSON(data []byte) (err error) { return unmarshal(p, data) }

// UnmarshalJSON reads a number or a string.
func (s *Switch) UnmarshalJSON(data []byte) (err error) { return unmarshal(s, data) }

// UnmarshalJSON reads a number or a string.
func (m *Metric) UnmarshalJSON(data []byte) (err error) { return unmarshal(m, data) }

// UnmarshalJSON reads a number or a string.
func (w *Weight) UnmarshalJSON(data []byte) (err error) { return unmarshal(w, data) }

// UnmarshalJSON reads a number or a string.
func (p *Percent) UnmarshalJSON(data []byte) (err error) { return unmarshal(p, data) }

// UnmarshalJSON reads a number or a string.
func (m *Milliseconds) UnmarshalJSON(data []byte) (err error) { return unmarshal(m, data) }

// UnmarshalJSON reads a number or a string.
func (s *Seconds) UnmarshalJSON(data []byte) (err error) { return unmarshal(s, data) }

// UnmarshalJSON reads a number or a string.
func (p *Priority) UnmarshalJSON(data []byte) (err error) { return unmarshal(p, data) }

// UnmarshalJSON reads a number or a string.
func (p *RoutePriority) UnmarshalJSON(data []byte) (err error) { return unmarshal(p, data) }

// UnmarshalJSON reads a number or a string.
func (i *Index) UnmarshalJSON(data []byte) (err error) { return unmarshal(i, data) }

// UnmarshalJSON reads a number or a string.
func (t *Table) UnmarshalJSON(data []byte) (err error) { return unmarshal(t, data) }

// UnmarshalJSON reads a number or a string.
func (m *Mark) UnmarshalJSON(data []byte) (err error) { return unmarshal(m, data) }

// UnmarshalJSON reads a number or a string.
func (m *MarkMatch) UnmarshalJSON(data []byte) (err error) { return unmarshal(m, data) }

func unmarshal[T ~string](to *T, data []byte) error {
	text, err := intOrString(data)
	*to = T(text)
	return err
}
