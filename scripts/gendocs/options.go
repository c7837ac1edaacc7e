package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"subctl/cable"
	"subctl/cable/ipsec"
	"subctl/dataplane"
)

// exampleConfig is the YAML of the example ConfigMap.
const exampleConfig = `vxlanID: 100       # for every driver that has the setting
wireguard:         # for one driver, and for the combined cable with it
  keepalive: 25s
  mtu: 1400`

// optionsPage is a format string with four arguments: the example, the settings, the proposals, and
// the packet sizes. ~ stands for the backquote, which a raw string cannot contain.
const optionsPage = `<!-- generated: make generate -->

# Settings of the cable drivers

All settings are optional. A cluster's settings are YAML in a ConfigMap:

~~~yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: cable-driver-config
  namespace: submariner-operator
data:
  CableCustomConfig: |
%s
~~~

Specify the ConfigMap when joining, ~subctl join --cable-driver-config cable-driver-config~, or later in the Submariner:

~~~sh
kubectl -n submariner-operator patch submariner submariner --type merge \
  -p '{"spec":{"cableDriverCustomConfig":{"configMapName":"cable-driver-config"}}}'
~~~

A cable policy specifies a ConfigMap with ~--cable-config~. Its settings apply to the pairs of clusters
that the policy decides, at both ends, and override the settings of each cluster.

A setting under the driver's own name takes precedence, then one under the name of a
part of a combined cable, then one under no name. Settings of the gateway as a whole,
such as ports, belong to the cluster: they have one value for all cables, and no policy can change them.
Where a combined cable [takes the place](failover.md#the-drivers-wireguard-and-ipsec) of the driver that a policy names, the settings
of the policy are those for that driver.

## Settings

| setting | drivers | values | default | set for | what it does |
| --- | --- | --- | --- | --- | --- |
%s
%s
The UDP ports of one gateway must differ from each other, and from the [ports that subctl uses](numbers.md).

## Packet sizes

The MTU of a cable is the [discovered](nat.md) MTU of the path between its two gateways, less the overhead
of the cable. Routes to the other clusters have this MTU, and the MSS of
TCP connections follows it; nothing needs to be configured. With the default settings, a path of 1500 bytes leaves:

| cable | MTU in bytes | overhead in bytes |
| --- | --- | --- |
%s
All figures are for IPv4, inside the cables and outside: there are no cables over IPv6, where headers are 20 bytes longer.
The setting ~mtu~ can only make packets smaller.

## Changes

The gateway reads the ConfigMap through the API server, and applies a change at once, without
a new pod. If a change moves a pair of clusters to another device, the new cable must answer
before traffic moves to it. This includes naming another ConfigMap
in ~Submariner.spec.cableDriverCustomConfig~.

With ~Submariner.spec.cableDriverCustomConfigPath~, the pods of gateways also mount the ConfigMap at that path, as an
optional volume, from the next ~subctl join~ on. What is mounted follows a change within a minute or so, and the gateways do not wait
for it. Naming another ConfigMap or path restarts the gateways' pods at the next ~subctl join~.

The effect of a change on traffic:

| setting | how it changes | what is lost |
| --- | --- | --- |
| ~vxlanID~ | another device, beside the first | nothing |
| ~mtu~, ~keepalive~, ~debug~ | in place | nothing |
| ~ikeProposals~, ~espProposals~, ~ikeLifetime~, ~espLifetime~, ~dpdDelay~, ~encapsulation~ | new keys are negotiated while the old keys are in use | at most the packets that one end sends in half a round trip |
| ~wireguardPort~ | in place; the other ends follow the first packet from the new port | nothing, unless a firewall on the path blocks the new port |
| ~ipsecPort~ | strongSwan is restarted | all IPsec cables of the gateway stop until the other clusters have received the new port: seconds |
| ~vxlanPort~ | both ends need the same port | the pair is not connected until both have it |

If the other end does not accept the new proposals, the existing keys stay in use, and
~subctl show connections -o wide~ reports it.

An invalid ConfigMap has no effect: the previous settings stay in force, even after a restart or
a change of the active gateway. The condition ~CableConfigValid~ of the Gateway objects
and an Event name the line, the setting, its value and the valid values:

~~~sh
kubectl -n submariner-operator get events --field-selector reason=BadCableConfig
~~~

The settings in force are in the annotation ~submariner.io/cable-config~ of the cluster's own
Cluster object. They also stay if the ConfigMap is deleted: to return to the defaults, empty it or
remove its name from the Submariner.

Some fields of the Submariner are upstream's form of ipsec settings, and apply where the ConfigMap
does not set the value: ~ceIPSecNATTPort~ (~ipsecPort~), ~ceIPSecForceUDPEncaps~ (~encapsulation: yes~), ~ceIPSecDebug~
(~debug~) and ~ceIPSecPreferredServer~ (~preferredServer~). If exactly one end of a pair is a preferred server, the other
end starts the negotiation; otherwise the end behind NAT, or else the end with the lower cable name. The
end that waits starts too if it receives nothing for some seconds. ~ceIPSecPSKSecret~ names the Secret with the pre-shared
key of the join file ([keys](keys.md)), which gateway pods mount: after a change run ~subctl join~ again, which keeps the
name. ~ceIPSecPSK~, the key itself, is never written and never read.
`

// options returns the page of the settings of drivers.
func options(drivers []cable.Driver) string {
	type row struct {
		option  cable.Option
		drivers []string
	}
	var rows []row
	for _, d := range drivers {
		for _, o := range d.Options() {
			i := slices.IndexFunc(rows, func(r row) bool { return sameOption(r.option, o) })
			if i < 0 {
				i = len(rows)
				rows = append(rows, row{option: o})
			}
			rows[i].drivers = append(rows[i].drivers, d.Name())
		}
	}
	var b strings.Builder
	for _, r := range rows {
		scope := "the gateway"
		if r.option.PerPair {
			scope = "each pair"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.option.Key, strings.Join(r.drivers, ", "),
			cell(r.option.Values()), cell(defaultOf(r.option)), scope, cell(r.option.Doc))
	}
	example := "    " + strings.ReplaceAll(exampleConfig, "\n", "\n    ")
	return fmt.Sprintf(strings.ReplaceAll(optionsPage, "~", "`"), example, b.String(), proposals(), sizes(drivers))
}

// sizes returns the table rows with the MTU and the overhead of each cable, on a path of 1500
// bytes.
func sizes(drivers []cable.Driver) string {
	const path = 1500
	var b strings.Builder
	for _, d := range drivers {
		last := 0
		for _, is := range []struct {
			how    string
			engine string
			peer   cable.Peer
		}{
			{"", dataplane.EngineKernel, cable.Peer{MTU: path}},
			{", through NAT", dataplane.EngineKernel, cable.Peer{MTU: path, NATed: true}},
			{", ESP in userspace", "userspace", cable.Peer{MTU: path}},
		} {
			is.peer.Config = cable.Config{}
			c := cable.Cable{Peer: is.peer, Driver: d}
			inside := c.MTU(cable.Local{MTU: path, IPsec: dataplane.Engine{Name: is.engine}})
			if inside != last {
				fmt.Fprintf(&b, "| %s%s | %d | %d |\n", d.Name(), is.how, inside, path-inside)
			}
			last = inside
		}
	}
	return b.String()
}

// proposals returns the section about the parts of IPsec proposals.
func proposals() string {
	var b strings.Builder
	b.WriteString(`### Proposals

Proposals have strongSwan's format: lower case keywords separated by dashes.

| part | keywords |
| --- | --- |
`)
	for _, p := range ipsec.Parts() {
		fmt.Fprintf(&b, "| %s | `%s` |\n", p.Name, strings.Join(p.Names, "`, `"))
	}
	fmt.Fprintf(&b, `
The ciphers %s authenticate packets themselves and take no integrity algorithm; the others require one.
Only IKE proposals have a pseudo-random function. It may be omitted after an integrity algorithm, whose hash is then
used. A Diffie-Hellman group is required: without it, keys that leak later would decrypt recorded
packets. Algorithms that RFC 8221 and RFC 8247 advise against, such as 3DES, MD5, SHA-1 and modp1024, are refused by name.

~~~yaml
ikeProposals: aes256gcm16-prfsha384-x25519,aes256-sha256-modp4096
espProposals: aes256gcm16-ecp384,aes128-sha256-ecp256
~~~
`, "~"+strings.Join(ipsec.Checked(), "~, ~")+"~")
	return strings.ReplaceAll(b.String(), "~", "`")
}

// sameOption reports whether a and b are the same option. It ignores Check, since
// functions are not comparable.
func sameOption(a, b cable.Option) bool {
	a.Check = nil
	b.Check = nil
	return reflect.DeepEqual(a, b)
}

// defaultOf returns the default value of o as Markdown. A number out of the range of o
// means that there is none.
func defaultOf(o cable.Option) string {
	if n := (cable.Config{}).Number(o); o.Default == "" || o.Kind == cable.OptionNumber && (n < o.Min || n > o.Max) {
		return "none"
	}
	return "`" + o.Default + "`"
}

// cell escapes text for a table cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
