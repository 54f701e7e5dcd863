"""The IPU devices of TensorFlow: registration, lookup and placement rules."""

from ipu_keras.device.registration import DRIVER as DRIVER
from ipu_keras.device.registration import DeviceCounters as DeviceCounters
from ipu_keras.device.registration import DeviceDriver as DeviceDriver
from ipu_keras.device.registration import IpuDevice as IpuDevice
from ipu_keras.device.registration import device_for as device_for
