package ipsec

import (
	"fmt"
	"maps"
	"strconv"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
)

// The settings.
var (
	optPort = cable.Option{
		Key: "ipsecPort", Kind: cable.OptionNumber, Default: strconv.Itoa(dataplane.IPsecPort), Min: 1, Max: 65535,
		Doc: "UDP port of IKE, and of ESP in UDP; the other end is told",
	}
	optDebug = cable.Option{
		Key: "debug", Kind: cable.OptionBool, Default: "false",
		Doc: "have strongSwan log how it negotiates, though never a key",
	}
	optServer = cable.Option{
		Key: "preferredServer", Kind: cable.OptionBool, Default: "false",
		Doc: "let the other end begin to negotiate, unless it says the same; this one begins if nothing has come for some seconds",
	}
	optIKE = cable.Option{
		Key: "ikeProposals", Kind: cable.OptionText, Default: "aes256gcm16-prfsha384-x25519,aes256gcm16-prfsha384-ecp384",
		Check: func(s string) error { return checkProposals(s, ike) }, Form: proposalsForm, PerPair: true,
		Doc: "what protects the negotiation, the best first; both ends need one in common",
	}
	optESP = cable.Option{
		Key: "espProposals", Kind: cable.OptionText, Default: "aes128gcm16-x25519,aes128gcm16-ecp256",
		Check: func(s string) error { return checkProposals(s, esp) }, Form: proposalsForm, PerPair: true,
		Doc: "what protects the packets, likewise",
	}
	optIKELife = cable.Option{
		Key: "ikeLifetime", Kind: cable.OptionDuration, Default: "4h", Min: 300, Max: 86400, PerPair: true,
		Doc: "how long the keys of the negotiation are used before they are renewed",
	}
	optESPLife = cable.Option{
		Key: "espLifetime", Kind: cable.OptionDuration, Default: "1h", Min: 120, Max: 86400, PerPair: true,
		Doc: "how long the keys of the packets are used before they are renewed",
	}
	optDPD = cable.Option{
		Key: "dpdDelay", Kind: cable.OptionDuration, Default: "30s", Min: 1, Max: 3600, PerPair: true,
		Doc: "how long the other end may be silent before it is asked whether it is alive",
	}
	optEncap = cable.Option{
		Key: "encapsulation", Kind: cable.OptionText, Default: "auto", Allowed: []string{"auto", "yes"}, PerPair: true,
		Doc: "ESP in UDP: yes for always, auto where there is an address translation, or ESP is done in userspace",
	}
)

// SettingsOf are the settings of both drivers that upstream has in the Submariner itself,
// by driver.
func SettingsOf(s v1alpha1.SubmarinerSpec) (map[string]cable.Config, error) {
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
	if len(c) == 0 {
		return map[string]cable.Config{}, nil
	}
	return map[string]cable.Config{cable.IPsec: c, cable.VXLANIPsec: maps.Clone(c)}, nil
}

// port is that of the daemon: both drivers have the setting, with one value.
func port(l cable.Local) int { return l.Settings[cable.IPsec].Number(optPort) }
