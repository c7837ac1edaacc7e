package agent

import (
	"fmt"

	"subctl/cable"
)

// maxDevices bounds the devices that policies can have a gateway make, by settings that
// give pairs of clusters one of their own (vxlanID): each costs the kernel a device, with
// rules of its own, and any member can write policies.
const maxDevices = 16

// room says why the gateway does not make a device for a cable; nil if it has it, or can.
// What clusters have been here for longer use comes first.
func (v *view) room(c cable.Cable) error {
	device := c.Device()
	if device == c.Driver.Device(v.settings[c.Driver.Name()]) || v.devices[device] {
		return nil
	}
	if len(v.devices) >= maxDevices {
		return noCable{c.Driver.Name(), c.Policy, fmt.Errorf("cable policy %s has it on a device of its own, %s, but policies can have a gateway make %d at most: let pairs of clusters share a vxlanID", c.Policy, device, maxDevices)}
	}
	if v.devices == nil {
		v.devices = map[string]bool{}
	}
	v.devices[device] = true
	return nil
}
