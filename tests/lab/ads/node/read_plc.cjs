// Reads a PLC with ads-client, and prints what it found as JSON.  Arguments: address, net id of the PLC.
const { Client } = require("ads-client");

const [address, netId] = process.argv.slice(2);
const client = new Client({
  targetAmsNetId: netId,
  targetAdsPort: 851,
  routerAddress: address,
  routerTcpPort: 48898,
  readAndCacheSymbols: true,
  readAndCacheDataTypes: true,
  hideConsoleWarnings: true,
});

function collect(target, cycleTime, count, sendOnChange) {
  return new Promise((resolve, reject) => {
    const found = [];
    const late = setTimeout(() => reject(new Error(`only ${found.length} of ${target}`)), 20000);
    client
      .subscribe({
        target,
        cycleTime,
        sendOnChange,
        callback: async (data, subscription) => {
          if (found.length === count) return; // more may come until the subscription has ended
          found.push({ value: data.value, time: data.timestamp.getTime() });
          if (found.length === count) {
            clearTimeout(late);
            await subscription.unsubscribe();
            resolve(found);
          }
        },
      })
      .catch(reject);
  });
}

async function main() {
  const found = {};
  const connection = await client.connect();
  found.localAdsPort = connection.localAdsPort;
  found.system = client.metaData.tcSystemState;
  found.runtime = client.metaData.plcRuntimeState;
  found.device = client.metaData.plcDeviceInfo;
  found.symbolVersion = client.metaData.plcSymbolVersion;
  const symbols = await client.getSymbols();
  found.symbols = Object.values(symbols).map(({ name, type, size, comment }) => ({ name, type, size, comment }));
  const types = await client.getDataTypes();
  found.types = Object.keys(types).length;
  found.info = (await client.readValue("GVL_Theta.stInfo")).value;
  found.block = (await client.readValue("GVL_Theta.stLatest")).value;
  found.axis = (await client.readValue("GVL_Theta.aRing[1].aSample[2].aAxis[3]")).value;
  found.station = (await client.readValue("MAIN.stStation")).value;
  found.matrix = (await client.readValue("MAIN.aMatrix")).value;
  found.mode = (await client.readValue("MAIN.eMode")).value;
  await client.writeValue("MAIN.eMode", "Setup");
  found.modeAfter = (await client.readValue("MAIN.eMode")).value;
  await client.writeValue("MAIN.stStation", { nNumber: 8, stTool: { sName: "saw" } }, true);
  found.stationAfter = (await client.readValue("MAIN.stStation")).value;
  const handles = await client.createVariableHandleMulti(["MAIN.nInt", "MAIN.nothing", "MAIN.fLreal"]);
  found.handles = handles.map(({ success }) => success);
  const good = handles.filter(({ success }) => success).map(({ handle }) => handle);
  const places = [symbols["main.nint"], symbols["main.flreal"]];
  const many = await client.readRawMulti(
    places.map(({ indexGroup, indexOffset, size }) => ({ indexGroup, indexOffset, size })),
  );
  found.many = [many[0].value.readInt16LE(0), many[1].value.readDoubleLE(0)];
  await client.deleteVariableHandleMulti(good);
  found.cycles = await collect("MAIN.nCycles", 10, 20, false);
  const changes = collect("MAIN.nUdint", 1, 3, true);
  for (const value of [5, 6]) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    await client.writeValue("MAIN.nUdint", value);
  }
  found.changes = await changes;
  await client.disconnect();
  return found;
}

main().then(
  (found) => console.log(JSON.stringify(found, (_, value) => (typeof value === "bigint" ? value.toString() : value))),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
