package ipsec

import (
	"fmt"
	"strconv"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
)

// The settings.
var (
	optPort = cable.Option{
		Key: "ipsecPort", Kind: cable.OptionNumber, Default: strconv.Itoa(dataplane.IPsecPort), Min: 1, Max: 65535,
		Doc: "UDP port of IKE, and of ESP in UDP; announced to the other clusters",
	}
	optDebug = cable.Option{
		Key: "debug", Kind: cable.OptionBool, Default: "false",
		Doc: "log details of strongSwan's negotiation, but never a key",
	}
	optServer = cable.Option{
		Key: "preferredServer", Kind: cable.OptionBool, Default: "false",
		Doc: "wait for the other end to start the negotiation, unless it is a preferred server too; this end starts if it receives nothing for some seconds",
	}
	optIKE = cable.Option{
		Key:     "ikeProposals",
		Kind:    cable.OptionText,
		Default: "aes256gcm16-prfsha384-x25519,aes256gcm16-prfsha384-ecp384",
		Check:   func(s string) error { return checkProposals(s, ike) },
		Form:    proposalsForm,
		PerPair: true,
		Doc:     "algorithms for the negotiation (IKE), the preferred proposal first; both ends need one in common",
	}
	optESP = cable.Option{
		Key: "espProposals", Kind: cable.OptionText, Default: "aes128gcm16-x25519,aes128gcm16-ecp256",
		Check: func(s string) error { return checkProposals(s, esp) }, Form: proposalsForm, PerPair: true,
		Doc: "algorithms for the packets (ESP), the preferred proposal first; both ends need one in common",
	}
	optIKELife = cable.Option{
		Key: "ikeLifetime", Kind: cable.OptionDuration, Default: "4h", Min: 300, Max: 86400, PerPair: true,
		Doc: "time after which the keys of the negotiation (IKE) are renewed",
	}
	optESPLife = cable.Option{
		Key: "espLifetime", Kind: cable.OptionDuration, Default: "1h", Min: 120, Max: 86400, PerPair: true,
		Doc: "time after which the keys of the packets (ESP) are renewed",
	}
	optDPD = cable.Option{
		Key: "dpdDelay", Kind: cable.OptionDuration, Default: "30s", Min: 1, Max: 3600, PerPair: true,
		Doc: "time without packets from the other end after which a liveness check is sent",
	}
	optEncap = cable.Option{
		Key: "encapsulation", Kind: cable.OptionText, Default: "auto", Allowed: []string{"auto", "yes"}, PerPair: true,
		Doc: "ESP in UDP: yes means always; auto means only with NAT, or with ESP in userspace",
	}
)

// SettingsOf implements cable.Specified. Combined has the same settings.
func (Driver) SettingsOf(s v1alpha1.SubmarinerSpec) (cable.Config, error) {
	c := cable.Config{}
	if port := s.CeIPSecNATTPort; port != 0 && port != dataplane.IPsecPort { // join writes the default, too
		c[optPort.Key] = strconv.Itoa(port)
	}
	if s.CeIPSecForceUDPEncaps {
		c[optEncap.Key] = "yes"
	}
	if s.CeIPSecDebug {
		c[optDebug.Key] = "true"
	}
	if s.CeIPSecPreferredServer {
		c[optServer.Key] = "true"
	}
	if err := c.Check(Driver{}); err != nil {
		return nil, fmt.Errorf("Submariner.spec.ceIPSecNATTPort: %w", err)
	}
	return c, nil
}

// port returns the UDP port of the daemon. Both drivers have the setting, with the same value.
func port(l cable.Local) int { return l.Settings[cable.IPsec].Number(optPort) }
