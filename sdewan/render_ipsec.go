package sdewan

import (
	"cmp"
	"fmt"
	"strings"

	ipsec "subctl/api/sdewan/ipsec/v1alpha1"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// remote is an IpsecSite or an IpsecHost of either group.
type remote interface {
	*batch.IpsecSite | *batch.IpsecHost | *ipsec.IpsecSite | *ipsec.IpsecHost
}

// remoteSpec returns what both kinds have in common, and the connections, in which one of the two
// local fields is empty.
func remoteSpec[R remote](r R) (batch.IpsecRemote, []connection) {
	switch r := any(r).(type) {
	case *batch.IpsecSite:
		return r.Spec.IpsecRemote, siteConnections(r.Spec)
	case *ipsec.IpsecSite:
		return r.Spec.IpsecRemote, siteConnections(r.Spec)
	case *batch.IpsecHost:
		return r.Spec.IpsecRemote, hostConnections(r.Spec)
	case *ipsec.IpsecHost:
		return r.Spec.IpsecRemote, hostConnections(r.Spec)
	}
	return batch.IpsecRemote{}, nil
}

type connection struct {
	batch.IpsecConnection
	localSubnet   batch.Subnets
	localSourceIP batch.SourceIPs
}

func siteConnections(s batch.IpsecSiteSpec) (out []connection) {
	for _, c := range s.Connections {
		out = append(out, connection{c.IpsecConnection, c.LocalSubnet, ""})
	}
	return out
}

func hostConnections(s batch.IpsecHostSpec) (out []connection) {
	for _, c := range s.Connections {
		out = append(out, connection{c.IpsecConnection, "", c.LocalSourceIP})
	}
	return out
}

func renderRemote[R remote](r R, _ Networks) (rest.Object, error) {
	s, connections := remoteSpec(r)
	o := &rest.Remote{
		Type:          s.Type,
		Gateway:       s.Remote,
		PreSharedKey:  s.PreSharedKey,
		Auth:          s.Auth,
		LocalID:       s.LocalID,
		RemoteID:      s.RemoteID,
		Proposals:     texts(s.Proposals),
		ForceProposal: string(s.ForceProposal),
		LocalCert:     s.LocalCert,
		LocalKey:      s.LocalKey,
		CA:            s.CA,
	}
	for _, c := range connections {
		o.Connections = append(o.Connections, rest.Connection{
			Name:           string(cmp.Or(c.Name, c.ConnectionName)),
			Type:           cmp.Or(c.ConnType, c.Type, "tunnel"),
			Mode:           c.Mode,
			LocalSubnet:    list(string(c.localSubnet)),
			LocalSourceIP:  list(string(c.localSourceIP)),
			LocalUpdown:    c.LocalUpdown,
			LocalFirewall:  c.LocalFirewall,
			RemoteSubnet:   list(string(c.RemoteSubnet)),
			RemoteSourceIP: list(string(c.RemoteSourceIP)),
			RemoteUpdown:   c.RemoteUpdown,
			RemoteFirewall: c.RemoteFirewall,
			Proposals:      texts(c.Proposals),
			Mark:           string(c.Mark),
			IfID:           string(c.IfID),
		})
	}
	return o, nil
}

// list removes the blanks around the elements of a list that is separated by commas: ipsec.conf has
// no blanks there.
func list(s string) string {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return strings.Join(parts, ",")
}

func usesOfRemote[R remote](r R) (out []Use) {
	s, connections := remoteSpec(r)
	add := func(field string, names []batch.ObjectName) {
		for i, name := range names {
			if name != "" {
				out = append(out, Use{"IpsecProposal", rest.Proposals, string(name), fmt.Sprintf("%s[%d]", field, i)})
			}
		}
	}
	add("spec.crypto_proposal", s.Proposals)
	for i, c := range connections {
		add(fmt.Sprintf("spec.connections[%d].crypto_proposal", i), c.Proposals)
	}
	return out
}
